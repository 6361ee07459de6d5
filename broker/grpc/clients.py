"""The gRPC clients of this broker, and what each has said of itself.

A client is known by its id (``x-mq-client-id``) and its user; it may come by several connections, and several clients
may share one (behind a balancer). To the broker it is one ``InnerConnection``: in its tables, in its limits, in what an
administrator sees.

Lives here: ``GrpcClient``, ``GrpcClients``.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from pocketmq.common.bounds import bounded
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.limits import CLIENT_ID_LENGTH_MAX
from pocketmq.remoting.codec import Body, Response
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.connection_owner import ConnectionOwner
from pocketmq.remoting.grpc.call import Call
from pocketmq.remoting.grpc.inner_connection import InnerConnection
from pocketmq.remoting.grpc.messages import Settings, TelemetryCommand
from pocketmq.remoting.grpc.protobuf import encode
from pocketmq.remoting.limits.server_limits import ServerLimits
from pocketmq.remoting.protocol.spec import Header

CLIENTS_MAX: Final = 10_000
CLIENT_BYTES: Final = 16 << 10
"""One client without its settings."""
HELD_BYTES_MAX: Final = 128 << 20
"""Settings of all clients, and commands that wait for them."""
FACTOR: Final = 8
"""A byte of settings takes so many as objects."""
COMMAND_BYTES: Final = 4_096
"""A command without its message's body."""
COMMANDS_MAX: Final = 64
"""Commands that wait for one client: RocketMQ's ``serverAsyncSemaphoreValue``."""
IDLE_NS: Final = 120_000_000_000
"""A client that makes no call for so long is forgotten (RocketMQ's channelExpiredTimeout)."""
AWAY_NS: Final = 30_000_000_000
"""So long after its stream has ended, and after its last call, a client counts as gone."""
LANGUAGES: Final = {
    "JAVA": 0, "CPP": 1, "DOT_NET": 2, "PYTHON": 3, "RUBY": 6, "GOLANG": 9, "PHP": 10, "RUST": 12, "NODE_JS": 13,
}  # fmt: skip
"""Language in the metadata → RocketMQ's ``LanguageCode``."""
OTHER_LANGUAGE: Final = 7

Done = Callable[[Response | PocketMQError], None]


class TooManyClients(PocketMQError):
    """No further gRPC client is taken."""

    code = ResponseCode.SYSTEM_BUSY
    default_cause = Cause.MEMORY_LIMIT
    retriable = True


class GrpcClient:
    """One client. Loop thread only."""

    __slots__ = (
        "_memory",
        "_settings_bytes",
        "_wake",
        "client_id",
        "commands",
        "connection",
        "seen_ns",
        "settings",
        "stream",
        "user",
    )

    def __init__(self, client_id: str, user: str, connection: InnerConnection, memory: "HeldBytes") -> None:
        self._memory = memory
        self._settings_bytes = 0
        self.client_id = client_id
        self.user = user
        self.connection = connection
        self.settings: Settings | None = None
        """What it has said of itself; None: nothing yet."""
        self.stream: Call | None = None
        """Where commands go."""
        self.commands: deque[tuple[TelemetryCommand, int]] = deque()
        """Commands and their bytes."""
        self.seen_ns = 0
        self._wake: asyncio.Event | None = None

    @property
    def is_fifo(self) -> bool:
        """Whether it consumes in order."""
        settings = self.settings
        return bool(settings is not None and settings.subscription is not None and settings.subscription.fifo)

    def keep(self, settings: Settings) -> None:
        """Take its settings. Raise ``TooManyClients`` if all of them take too much memory."""
        size_bytes = FACTOR * len(encode(settings))
        self._memory.add(size_bytes - self._settings_bytes)
        self.settings, self._settings_bytes = settings, size_bytes

    def tell(self, command: TelemetryCommand, body_bytes: int = 0) -> bool:
        """Send a command soon; False: the client has no stream, or too much waits for it. ``body_bytes``: of the
        message in it."""
        if self.stream is None or self.stream.closed or len(self.commands) >= COMMANDS_MAX:
            return False
        size_bytes = COMMAND_BYTES + body_bytes
        try:
            self._memory.add(size_bytes)
        except TooManyClients:
            return False
        self.commands.append((command, size_bytes))
        if self._wake is not None:
            self._wake.set()
        return True

    async def next_command(self, stream: Call) -> TelemetryCommand:
        """Return the next command for a stream; one that is not the client's any more waits in vain."""
        if self._wake is None:
            self._wake = asyncio.Event()
        while not self.commands or self.stream is not stream:
            self._wake.clear()
            await self._wake.wait()
        command, size_bytes = self.commands.popleft()
        self._memory.add(-size_bytes)
        return command

    def drop(self) -> None:
        """Give its memory back."""
        self._memory.add(-self._settings_bytes - sum(size for _, size in self.commands))
        self._settings_bytes = 0
        self.commands.clear()


class HeldBytes:
    """Memory of all clients together."""

    __slots__ = ("used_bytes",)

    def __init__(self) -> None:
        self.used_bytes = 0

    def add(self, size_bytes: int) -> None:
        """Count bytes; below 0 give them back. Raise ``TooManyClients`` at the limit, and count nothing."""
        if size_bytes > 0 and self.used_bytes + size_bytes > HELD_BYTES_MAX:
            raise TooManyClients(
                "call refused",
                why=f"settings and commands of gRPC clients take {self.used_bytes} bytes",
                retry_after_ms=1_000,
            )
        self.used_bytes += size_bytes


@bounded("settings and commands of gRPC clients", limit=HELD_BYTES_MAX, size="held_bytes", unit="bytes")
@bounded("gRPC clients", limit=CLIENTS_MAX, size="__len__", entry_bytes=CLIENT_BYTES)
class GrpcClients:
    """All clients, by user and id. Loop thread only."""

    def __init__(
        self,
        owner: ConnectionOwner,
        limits: ServerLimits | None,
        clock: Clock,
        on_command: Callable[[GrpcClient, int, Header | None, Body, Done | None], None],
    ) -> None:
        """``on_command`` takes what the broker asks a client."""
        self._owner = owner
        self._limits = limits
        self._clock = clock
        self._on_command = on_command
        self._memory = HeldBytes()
        self._clients: dict[tuple[str, str], GrpcClient] = {}

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def held_bytes(self) -> int:
        """Memory of settings and commands."""
        return self._memory.used_bytes

    def __iter__(self) -> Iterator[GrpcClient]:
        return iter(list(self._clients.values()))

    def get(self, user: str, client_id: str) -> GrpcClient | None:
        """Return a client that is known."""
        client = self._clients.get((user, client_id))
        return None if client is None or client.connection.closed else client

    def of(self, user: str, client_id: str, by: Connection, language: str) -> GrpcClient:
        """Return the client with this id, new if need be; ``by``: the connection of its call. Raise
        ``TooManyClients``, and ``PocketMQError`` for an id that is none."""
        client = self._clients.get((user, client_id))
        if client is None or client.connection.closed:
            if client is not None:
                self.forget(client, "its connection is closed")
            client = self._new(user, client_id, by, language)
        client.seen_ns = self._clock.monotonic_ns()
        if client.connection.remote != by.remote:
            client.connection.stands_for(by)
        return client

    def _new(self, user: str, client_id: str, by: Connection, language: str) -> GrpcClient:
        if len(client_id) > CLIENT_ID_LENGTH_MAX:
            raise PocketMQError(
                "call refused", why=f"a client id of {len(client_id)} characters, limit {CLIENT_ID_LENGTH_MAX}",
                cause=Cause.BAD_REQUEST,
            )  # fmt: skip
        if len(self._clients) >= CLIENTS_MAX and not self._forget_one():
            raise TooManyClients("call refused", why=f"{CLIENTS_MAX} gRPC clients are known", retry_after_ms=1_000)
        inner: InnerConnection

        def command(code: int, header: Header | None, body: Body, done: Done | None) -> None:
            self._on_command(client, code, header, body, done)

        inner = InnerConnection(self._owner, command)
        inner.stands_for(by)
        inner.language = LANGUAGES.get(language, OTHER_LANGUAGE)
        client = self._clients[user, client_id] = GrpcClient(client_id, user, inner, self._memory)
        if self._limits is not None:
            self._limits.opened(inner)
        return client

    def _forget_one(self) -> bool:
        """Forget a client that has said nothing of itself, the first one that came."""
        for client in self._clients.values():
            if client.settings is None and client.stream is None:
                self.forget(client, "others need its place")
                return True
        return False

    def forget(self, client: GrpcClient, why: str) -> None:
        """Forget a client: the broker learns that it has gone."""
        key = client.user, client.client_id
        if self._clients.get(key) is client:
            del self._clients[key]
        client.drop()
        client.connection.close(why)
        if self._limits is not None:
            self._limits.closed(client.connection)

    def is_here(self, client: GrpcClient) -> bool:
        """Return whether a client still works on what it has received."""
        if client.connection.closed:
            return False
        if client.stream is not None and not client.stream.closed:
            return True
        return self._clock.monotonic_ns() - client.seen_ns < AWAY_NS

    def sweep(self) -> None:
        """Forget those that make no call any more. Called every few seconds."""
        oldest_ns = self._clock.monotonic_ns() - IDLE_NS
        for client in self:
            if client.connection.closed or (client.seen_ns < oldest_ns and not self.is_here(client)):
                self.forget(client, "no heartbeat")

    def close(self, why: str) -> None:
        """Forget all of them: the broker stops."""
        for client in self:
            self.forget(client, why)
