"""Who is connected, who sends and reads, and who is slow: the JSON of ``/connz``.

    /connz?sort=unwritten&limit=20&offset=0

The kernel counts the bytes of a connection (Linux ``TCP_INFO``), so that they cost no request anything; elsewhere they
are -1. What a connection sends to is not known before it sends: its producer groups are.

Lives here: ``Connz``, the rows of its report.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from pocketmq.broker.group.client_table import ClientInfo, ClientTable
from pocketmq.broker.stats.sent_topics import sent_topics
from pocketmq.common.clock import Clock
from pocketmq.remoting.codes import LanguageCode, version_name
from pocketmq.remoting.frame import MSGPACK
from pocketmq.remoting.http_server import JSON, TEXT, Answer, HttpRequest
from pocketmq.remoting.server import Connection, RemotingServer
from pocketmq.remoting.tcp_info import tcp_info

LIMIT: Final = 1024
"""Connections of one answer if the request does not say (as in NATS)."""
LIMIT_MAX: Final = 10_000
OFFSET_MAX: Final = (1 << 31) - 1
GROUPS_MAX: Final = 64
TOPICS_MAX: Final = 64
_LANGUAGES: Final = frozenset(int(language) for language in LanguageCode)


class Reads(msgspec.Struct, frozen=True):
    """One consumer group of a connection; ``topics``: the group's subscriptions, at most ``TOPICS_MAX``."""

    group: str
    mode: str
    topics: list[str]


class ConnectionRow(msgspec.Struct, frozen=True):
    """One connection. Ages in ms, sizes in bytes.

    ``is_slow``: it does not read its answers, and its requests are not read either. ``unwritten_bytes``: answers that
    wait for it. ``idle_ms``: since the second in which a byte last came or went.
    """

    address: str
    client_ids: list[str]
    language: str
    version: str
    user: str
    is_encrypted: bool
    open_ms: int
    idle_ms: int
    bytes_in: int
    bytes_out: int
    rtt_us: int
    unwritten_bytes: int
    is_slow: bool
    sends: list[str]
    """Producer groups."""
    sends_to: list[str]
    """Topics, from samples."""
    reads: list[Reads]


class ConnzReport(msgspec.Struct, frozen=True):
    """``total``: open connections; ``connections``: those that were asked for."""

    broker: str
    total: int
    offset: int
    limit: int
    connections: list[ConnectionRow]


SORTS: Final[Mapping[str, Callable[[Connection], Any]]] = {
    "opened": lambda each: each.opened_ns,
    "idle": lambda each: each.active_ns,
    "unwritten": lambda each: (not each.over_high_water, -each.charged_unwritten_bytes),
}
"""``sort=`` → what decides: the oldest, the longest idle, the slowest first."""


class Connz:
    """Makes the report in the HTTP server's thread, from attributes and copies; the loop waits for none of it."""

    def __init__(
        self, broker_name: str, server: RemotingServer, clients: ClientTable[Connection], clock: Clock
    ) -> None:
        self._broker_name = broker_name
        self._server = server
        self._clients = clients
        self._clock = clock

    def page(self, request: HttpRequest) -> Answer:
        """Answer ``/connz``."""
        given = request.parameters
        sort = given.get("sort", "opened")
        try:
            limit, offset = int(given.get("limit", LIMIT)), int(given.get("offset", 0))
        except ValueError:
            return Answer(400, TEXT, b"limit and offset are numbers\n")
        if sort not in SORTS or not 0 < limit <= LIMIT_MAX or not 0 <= offset <= OFFSET_MAX:
            text = f"sort: {', '.join(SORTS)}; limit: 1 to {LIMIT_MAX}; offset: 0 to {OFFSET_MAX}\n"
            return Answer(400, TEXT, text.encode())
        return Answer(200, JSON, msgspec.json.encode(self.report(sort, limit, offset)) + b"\n")

    def report(self, sort: str = "opened", limit: int = LIMIT, offset: int = 0) -> ConnzReport:
        """Return ``limit`` connections after the first ``offset`` in this order."""
        connections = sorted(self._server.connections.copy(), key=SORTS[sort])  # a set is copied in one step
        now_ns = self._clock.monotonic_ns()
        rows = [self._row(each, now_ns) for each in connections[offset : offset + limit]]
        return ConnzReport(self._broker_name, len(connections), offset, limit, rows)

    def _row(self, connection: Connection, now_ns: int) -> ConnectionRow:
        producers, consumers = self._clients.of_connection(connection)
        counted = tcp_info(connection.socket)
        clients = [*producers.values(), *consumers.values()]
        language, version = _told(connection, clients)
        speaker = connection.speaker or connection.session
        return ConnectionRow(
            address=connection.remote,
            client_ids=sorted({client.client_id for client in clients}),
            language=language,
            version=version,
            user="" if speaker is None else speaker.user.username,
            is_encrypted=connection.is_encrypted,
            open_ms=(now_ns - connection.opened_ns) // 1_000_000,
            idle_ms=max(0, now_ns - connection.active_ns) // 1_000_000,
            bytes_in=counted.bytes_in,
            bytes_out=counted.bytes_out,
            rtt_us=counted.rtt_us,
            unwritten_bytes=connection.unwritten_bytes,
            is_slow=connection.over_high_water,
            sends=sorted(producers)[:GROUPS_MAX],
            sends_to=sent_topics(connection),
            reads=[self._reads(group) for group in sorted(consumers)[:GROUPS_MAX]],
        )

    def _reads(self, group: str) -> Reads:
        known = self._clients.consumer_group(group)
        if known is None:  # it has just left
            return Reads(group, "", [])
        return Reads(group, known.message_model, sorted(known.subscriptions)[:TOPICS_MAX])


def _told(connection: Connection, clients: Sequence[ClientInfo[Connection]]) -> tuple[str, str]:
    """Return language and version: those of a heartbeat, else of the last request. Native connections say neither with
    their requests."""
    teller: ClientInfo[Connection] | Connection = clients[0] if clients else connection
    if teller is connection and connection.serialize_type == MSGPACK:
        return "", ""
    language = LanguageCode(teller.language) if teller.language in _LANGUAGES else LanguageCode.OTHER
    return language.name, version_name(teller.version)
