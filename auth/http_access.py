"""Who may read the pages of an HTTP port: Basic authentication (RFC 7617) against the users and policies of its server.

Prometheus, curl and browsers can do it. A password goes over the wire: TLS belongs to it, or loopback.

Lives here: ``HttpAccess``.
"""

import base64
import binascii
import hmac
from typing import TYPE_CHECKING, Final

from pocketmq.auth.guard import FAILURES_MAX, HOSTS_MAX, NO_SECRET, source_of
from pocketmq.auth.session import Session
from pocketmq.auth.users import User, UserType
from pocketmq.common.bounds import bounded
from pocketmq.common.clock import Clock
from pocketmq.remoting.http_server import TEXT, Answer, HttpRequest
from pocketmq.remoting.protocol.access import GET, Resource

if TYPE_CHECKING:
    from pocketmq.auth.server_auth import ServerAuth

CHALLENGE: Final = (("WWW-Authenticate", 'Basic realm="pocketmq", charset="UTF-8"'),)
HTTP_CODE: Final = 0
"""The request code of a denial at the HTTP port: none."""


@bounded("HTTP failures by address", limit=HOSTS_MAX, size="failures", entry_bytes=300, when_full="evicts")
class HttpAccess:
    """Decides for one HTTP server, in its thread. Where nobody has to authenticate everybody may read."""

    def __init__(self, auth: "ServerAuth", cluster: str, clock: Clock) -> None:
        """``cluster``: a user whom policies restrict needs Get on it, as for the broker's statistics (code 28)."""
        self._auth = auth
        self._cluster = cluster
        self._clock = clock
        self.failures: dict[str, tuple[int, int]] = {}
        """Host → second of its last failure, failures in it."""

    def refusal(self, request: HttpRequest) -> Answer | None:
        """Return the answer to one who may not read; None: this user may."""
        auth, host = self._auth, request.host
        if auth.guard is None:
            return None
        second = self._clock.monotonic_ns() // 1_000_000_000
        last, count = self.failures.get(host, (second, 0))
        if count >= FAILURES_MAX and last == second:
            auth.denials.note(
                "flood", "", host, HTTP_CODE, "", "", "too many wrong passwords a second at the HTTP port"
            )
            return Answer(429, TEXT, b"too many wrong passwords: wait a second\n", (("Retry-After", "1"),))
        given = _credentials(request.headers.get("authorization", ""))
        if given is None:
            auth.denials.note("user", "", host, HTTP_CODE, "", "", "no credentials at the HTTP port")
            return Answer(401, TEXT, b"this page wants a user and a password: see docs/security.md\n", CHALLENGE)
        name, password = given
        user = self._user(name)
        secret = NO_SECRET if user is None else user.password
        if not hmac.compare_digest(password.encode(), secret.encode()) or user is None or not user.is_enabled:
            if len(self.failures) >= HOSTS_MAX:
                del self.failures[next(iter(self.failures))]
            self.failures[host] = (second, count + 1 if last == second else 1)
            auth.denials.note("user", name, host, HTTP_CODE, "", "", "wrong user or password at the HTTP port")
            return Answer(401, TEXT, b"wrong user or password\n", CHALLENGE)
        table = auth.table
        session = Session(
            user, source_of(host), table.contents, table.generation, checks=auth.config.authorization_enabled
        )
        if session.may(Resource.CLUSTER, self._cluster, GET):
            return None
        why = session.verdict(Resource.CLUSTER, self._cluster, GET).why
        auth.denials.note("policy", name, host, HTTP_CODE, f"{Resource.CLUSTER.value}:{self._cluster}", "Get", why)
        return Answer(403, TEXT, f"user {name} needs Get on {Resource.CLUSTER.value}:{self._cluster}\n".encode())

    def _user(self, name: str) -> User | None:
        inner = self._auth.inner
        if inner is not None and name == inner.access_key:
            return User(username=inner.access_key, password=inner.secret_key, user_type=UserType.SUPER)
        return self._auth.table.contents.users.get(name)


def _credentials(header: str) -> tuple[str, str] | None:
    """Return (user, password) of an ``Authorization`` header; None: it has none that can be read."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (name, password) if colon else None
