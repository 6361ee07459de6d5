"""Whose call is it? Client id, user, language and address, from a call's metadata.

Metadata (RocketMQ 5.3.3 ``InterceptorConstants``): ``x-mq-client-id``, ``x-mq-language``, ``x-mq-client-version``,
``x-mq-date-time``, ``authorization``. The signature (``MQv2-HMAC-SHA1 Credential=NAME, SignedHeaders=x-mq-date-time,
Signature=HEX``) is HMAC-SHA1 over the date alone: it protects neither method nor body, so only TLS makes it worth
something; and because clients write local time with a ``Z``, a date can only be checked to about a day.

Lives here: ``Caller``, ``Callers``.
"""

import datetime
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from pocketmq.auth.guard import AuthGuard
from pocketmq.auth.session import Session
from pocketmq.broker.grpc.clients import GrpcClient, GrpcClients
from pocketmq.broker.grpc.statuses import CallRefused
from pocketmq.common.clock import Clock
from pocketmq.remoting.codec import Request, Response
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.frame import MSGPACK, Buffer
from pocketmq.remoting.grpc.call import Call
from pocketmq.remoting.grpc.codes import Code
from pocketmq.remoting.grpc.inner_connection import InnerConnection
from pocketmq.remoting.protocol.spec import Header

ALGORITHM: Final = "MQv2-HMAC-SHA1"
DATE: Final = "x-mq-date-time"
OFF_S_MAX: Final = 26 * 3600
"""How far a date may be off: a day, the widest distance of two zones from each other, and what clocks differ."""
_PART = re.compile(r"(\w+)=([^\s,]*)")


@dataclass(slots=True)
class Caller:
    """Who makes a call."""

    client: GrpcClient
    session: Session | None
    """Of its user; None: this server has no users."""
    call: Call

    @property
    def version(self) -> str:
        """The version of the client's library."""
        return self.call.metadata.get("x-mq-client-version", "")

    @property
    def connection(self) -> InnerConnection:
        """The client, as processors see it."""
        return self.client.connection

    async def ask(self, code: int, header: Header | None = None, body: Buffer = b"") -> Response:
        """Have a request served for this caller. Raise ``PocketMQError``."""
        return await self.client.connection.ask(code, header, body, session=self.session)


class Callers:
    """Recognizes callers. Loop thread only."""

    def __init__(self, clients: GrpcClients, guard: AuthGuard | None, clock: Clock) -> None:
        self._clients = clients
        self._guard = guard
        self._clock = clock

    def of(self, call: Call, code: int) -> Caller:
        """Return who makes a call; ``code``: the request of RocketMQ's that it stands for. Raise ``CallRefused``,
        ``AccessDenied``."""
        metadata = call.metadata
        client_id = metadata.get("x-mq-client-id", "")
        if not client_id:
            raise CallRefused(Code.CLIENT_ID_REQUIRED, "the metadata x-mq-client-id is missing")
        by = cast(Connection, call.connection)
        session = None if self._guard is None else self._session(self._guard, by, code, metadata)
        user = "" if session is None else session.user.username
        client = self._clients.of(user, client_id, by, metadata.get("x-mq-language", ""))
        return Caller(client, session, call)

    def _session(self, guard: AuthGuard, by: Connection, code: int, metadata: Any) -> Session:
        algorithm, _, rest = metadata.get("authorization", "").partition(" ")
        parts = dict(_PART.findall(rest)) if algorithm == ALGORITHM else {}
        name = parts.get("Credential", "").partition("/")[0]
        return guard.caller(by, code, name, _proof(metadata.get(DATE, ""), parts.get("Signature", ""), self._clock))

    def check(self, caller: Caller, code: int, header: Header | None = None, body: Buffer = b"") -> None:
        """Raise ``PocketMQError`` unless the caller may make this request, which is answered here."""
        if self._guard is None:
            return
        connection = caller.client.connection
        request = Request(code, 0, False, connection.version, connection.language, MSGPACK, header, body, {})
        connection.session = caller.session
        refusal = self._guard.refusal(connection, request)
        connection.session = None
        if refusal is not None:
            raise refusal


def _proof(date: str, signature: str, clock: Clock) -> Callable[[str], bool]:
    """Return what says whether a call carries the signature of somebody with this password."""

    def proves(password: str) -> bool:
        expected = hmac.digest(password.encode(errors="replace"), date.encode(errors="replace"), "sha1").hex()
        is_signed = hmac.compare_digest(signature.lower().encode(errors="replace"), expected.encode())
        return is_signed and _is_of_now(date, clock)

    return proves


def _is_of_now(date: str, clock: Clock) -> bool:
    try:
        then = datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    except ValueError:
        return False
    return abs(then.timestamp() - clock.now_ms() / 1000) <= OFF_S_MAX
