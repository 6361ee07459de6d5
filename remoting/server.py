"""The remoting server: listens, keeps its connections within limits.

    server = RemotingServer(ServerConfig(), handler, announce=lambda connection: Announcement(), log=log, clock=clock)
    await server.start("127.0.0.1", 10911);  ...;  await server.stop(grace_ms=1000)

Lives here: listening, counting, one check of all connections each second for expired ones.

When there are too many connections, of one host or in all, a new one takes the place of one that has said nothing since
it was opened, of the host that has most of those.
"""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from pocketmq.common.bounds import bounded
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.histogram import SampledHistogram
from pocketmq.remoting.acceptor import Acceptor, TlsSource
from pocketmq.remoting.codec import Request
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.connection_owner import Guard, RequestHandler
from pocketmq.remoting.errors import AddressInUse, BindFailed
from pocketmq.remoting.frame import new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.limits.server_limits import ServerLimits
from pocketmq.remoting.protocol.hello import Announcement
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.remoting.security.tls_files import TlsFiles
from pocketmq.remoting.server_config import ServerConfig
from pocketmq.remoting.turns import Turns

SILENT_NS: Final = 2_000_000_000
"""Age at which a connection without a request gives way to a new one, where there are too many."""
LOOPBACK: Final = ("127.", "::1", "::ffff:127.")

__all__ = ["Connection", "RemotingServer", "RequestHandler", "ServerConfig"]


@bounded(
    "connections",
    limit="config.connections_max",
    size="connections",
    entry_bytes=16_384,
    setting="remoting.connections_max",
)
class RemotingServer:
    """One listening port, or several with the same handler and limits. Use from the thread of the loop it was started
    in.

    After ``start`` it accepts connections and ``port`` is known; after ``stop`` no connection is left and no timer
    runs.
    """

    def __init__(
        self,
        config: ServerConfig,
        handler: RequestHandler,
        *,
        announce: Callable[[Connection], Announcement],
        log: EventLog,
        clock: Clock,
        read_times: SampledHistogram | None = None,
        slow_read_ms: int = 500,
        on_slow_read: Callable[[Connection, Request, int], None] | None = None,
        serves: Callable[[int], bool] | None = None,
        refused: RefusedRequests | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        """``read_times`` counts, in the loop's thread, how long each frame took from its first byte until it was
        decoded and handed on; of several frames in one read each but the first counts from that read to its end.
        ``on_slow_read(connection, request, took_ns)`` is called for frames that took more than ``slow_read_ms`` to
        arrive. ``serves(request code)``: whether ``handler`` serves it; called if the header of a request is bad:
        RocketMQ refuses a code that it does not serve without reading its fields, and so do we. ``refused`` counts
        requests whose header is refused here; without it each of them is logged. ``tls``: loaded; where it has a
        context for servers, an ``Acceptor`` listens in place of the loop.
        """
        self.config = config
        self.read_times = read_times
        self.slow_read_ns = slow_read_ms * 1_000_000
        self.on_slow_read = on_slow_read
        self.serves = serves
        self.refused = refused
        self.guard: Guard | None = None
        """Asked about every request before ``handler``; None: everybody may ask for everything."""
        self.limits: ServerLimits | None = None
        """Who may connect how often, and what connections may send and get; None: no limits."""
        self.handler = handler
        self.announce = announce
        self.log = log
        self.clock = clock
        self.short_path: Callable[[Connection, int], int] | None = None
        """Called with a connection and the number of bytes at the start of ``scratch`` before they are decoded; takes
        whole frames from there and returns how many bytes they have. Set while small sends may be served so."""
        self.budget = FrameBudget(config.half_frames_bytes_max)
        self.scratch = new_scratch()
        self.connections: set[Connection] = set()
        self._of_host: Counter[str] = Counter()
        self._silent: dict[str, list[Connection]] = {}
        """Host → its connections without a request, the oldest last, while there are too many connections."""
        self.unwritten_bytes = 0
        """Sum of the unwritten bytes that each connection had at its last write."""
        self.direct_writers = 0
        """Connections that have a second descriptor for the answers of other threads."""
        self.refused_count = 0
        """Connections closed at once because there were too many."""
        self.silent_closed = 0
        """Connections without a request that gave way to new ones."""
        self.full_ns = 0
        """When a connection was last refused because ``connections_max`` was reached, monotonic; 0: never."""
        self._refused_host = ""
        self.loop: asyncio.AbstractEventLoop
        self.turns: Turns
        self._refused_logged = 0
        self._listeners: list[asyncio.Server] = []
        self._tls = tls
        self.acceptor: Acceptor | None = None
        """Listens where TLS is served."""
        self._more_acceptors: list[Acceptor] = []
        self._entering = 0
        """Connections that the acceptor has taken and that are not made yet."""
        self._expire_timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._emptied: asyncio.Event | None = None
        self.port = 0

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 takes a free one. Raise ``AddressInUse`` or ``BindFailed``."""
        assert not self._listeners
        assert self.acceptor is None
        self.loop = asyncio.get_running_loop()
        self.turns = Turns(self.loop, self.clock.monotonic_ns)
        self._stopping = False
        self.acceptor = self._acceptor_of(partial(Connection, self), self._tls)
        self.port = await self._listen(host, port)
        self._arm()

    async def listen_also(
        self, host: str, port: int, make: Callable[[], Connection] | None = None, tls: TlsSource | None = None
    ) -> int:
        """Accept connections at a second port until ``stop``; the same limits count for both. Return the port; raise as
        ``start``.

        ``make`` returns a connection that speaks another protocol than RocketMQ's. ``tls``: the certificate of that
        port; None: that of the server.
        """
        assert self._listeners or self.acceptor is not None, "start first"
        assert not self._stopping
        if make is None:
            return await self._listen(host, port)
        acceptor = self._acceptor_of(make, tls or self._tls)
        if acceptor is not None:
            self._more_acceptors.append(acceptor)
        return await self._listen(host, port, make, acceptor)

    def _acceptor_of(self, make: Callable[[], Connection], tls: TlsSource | None) -> Acceptor | None:
        """Return what accepts connections where TLS is served."""
        if tls is None or tls.server is None:
            return None
        return Acceptor(make, self, tls, loop=self.loop, clock=self.clock, log=self.log)

    async def _listen(
        self, host: str, port: int, make: Callable[[], Connection] | None = None, acceptor: Acceptor | None = None
    ) -> int:
        if make is None:
            make, acceptor = partial(Connection, self), self.acceptor
        try:
            if acceptor is not None:
                return await acceptor.listen(host, port, self.config.listen_backlog)
            listener = await self.loop.create_server(make, host, port, backlog=self.config.listen_backlog)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressInUse(
                    f"cannot listen on {host}:{port}",
                    why=f"port {port} is in use by another process",
                    hint="stop that process or choose another port",
                    port=port,
                ) from error
            raise BindFailed(
                f"cannot listen on {host}:{port}", why=error.strerror or str(error), hint="check host and port"
            ) from error
        self._listeners.append(listener)
        bound: int = listener.sockets[0].getsockname()[1]
        return bound

    async def stop(self, grace_ms: int = 1_000) -> None:
        """Stop accepting and reading, write the waiting answers for at most ``grace_ms``, then close everything."""
        if not self._listeners and self.acceptor is None:
            return
        self._stopping = True
        acceptors = self._acceptors
        self.acceptor = None
        self._more_acceptors.clear()
        for acceptor in acceptors:
            acceptor.close()
            await acceptor.wait_closed()
        for listener in self._listeners:
            listener.close()
        if self._expire_timer is not None:
            self._expire_timer.cancel()
            self._expire_timer = None
        self._emptied = asyncio.Event()
        for connection in list(self.connections):
            connection.stop_reading()
            connection.close_when_written("the server stops")
        if self.connections:
            try:
                async with asyncio.timeout(grace_ms / 1000):
                    await self._emptied.wait()
            except TimeoutError:
                pass
        for connection in list(self.connections):
            connection.abort("the server stops")
        while self.connections:
            self._emptied.clear()
            await self._emptied.wait()
        for listener in self._listeners:
            await listener.wait_closed()
        self._listeners.clear()

    @property
    def _acceptors(self) -> list[Acceptor]:
        return self._more_acceptors if self.acceptor is None else [self.acceptor, *self._more_acceptors]

    # ---- what a connection calls -----------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        """Count a connection in, or refuse it."""
        if self._stopping:
            return False
        host = connection.host
        is_accepted = any(acceptor.arrived(connection) for acceptor in self._acceptors)
        if not is_accepted and not self.welcomes(host):
            return False
        if not self._admit(host):
            return False
        self.connections.add(connection)
        self._of_host[host] += 1
        if self.limits is not None:
            self.limits.opened(connection)
        return True

    def welcomes(self, host: str) -> bool:
        """See ``Door``."""
        if self.limits is None or self.limits.admits(host):
            return True
        self.refused_count += 1
        self._refused_host = host
        if self.refused_count == 1:
            self._log_refused()
        return False

    def enter(self, host: str) -> bool:
        """See ``Door``."""
        if self._stopping or not self._admit(host):
            return False
        self._entering += 1
        self._of_host[host] += 1
        return True

    def leave(self, host: str) -> None:
        """See ``Door``."""
        self._entering -= 1
        self._uncount(host)

    def _admit(self, host: str) -> bool:
        """Return whether there is room for a connection of this host, if need be by closing a silent one."""
        if not (self._has_room(host) or (self._close_silent(host) and self._has_room(host))):
            self.refused_count += 1
            if len(self.connections) >= self.config.connections_max:
                self.full_ns = self.clock.monotonic_ns()
            self._refused_host = host
            if self.refused_count == 1:
                self._log_refused()
            return False
        return True

    def _has_room(self, host: str) -> bool:
        limit = self.config.connections_max
        if not host.startswith(LOOPBACK):
            limit = min(limit, self.config.connections_per_address_max)
        return len(self.connections) + self._entering < self.config.connections_max and self._of_host[host] < limit

    def _close_silent(self, host: str) -> bool:
        """Close a connection that has said nothing: of this host if it has too many, else of the host with most."""
        if len(self.connections) >= self.config.connections_max:
            host = max(self._silent, key=lambda each: len(self._silent[each]), default=host)
        silent = self._silent.get(host, [])
        while silent:
            oldest = silent.pop()
            if not oldest.closed and not _has_spoken(oldest):
                oldest.close("it said nothing, and others need its place")
                self._leave(oldest)
                self.silent_closed += 1
                return True
        self._silent.pop(host, None)
        return False

    def lost(self, connection: Connection) -> None:
        """Stop counting a connection."""
        self._leave(connection)
        self.unwritten_bytes -= connection.charged_unwritten_bytes
        connection.charged_unwritten_bytes = 0
        if self._emptied is not None and not self.connections:
            self._emptied.set()

    def _leave(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.discard(connection)
            self._uncount(connection.host)
            if self.limits is not None:
                self.limits.closed(connection)

    def _uncount(self, host: str) -> None:
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]

    def charge_unwritten(self, connection: Connection, size_bytes: int) -> None:
        """Note how many bytes of answers wait for it; above ``unwritten_bytes_max`` close the connection with most."""
        self.unwritten_bytes += size_bytes - connection.charged_unwritten_bytes
        connection.charged_unwritten_bytes = size_bytes
        limit = self.config.unwritten_bytes_max
        if self.unwritten_bytes <= limit:
            return
        for each in self.connections:  # most are read by now: a charge is as old as the last write
            each.charged_unwritten_bytes = each.unwritten_bytes
        self.unwritten_bytes = sum(each.charged_unwritten_bytes for each in self.connections)
        open_ones = [each for each in self.connections if not each.closed]
        open_ones.sort(key=lambda each: each.charged_unwritten_bytes)
        excess = sum(each.charged_unwritten_bytes for each in open_ones) - limit
        while excess > 0:
            largest = open_ones.pop()
            excess -= largest.charged_unwritten_bytes
            largest.close_for_unwritten()

    # ---- expiry ----------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        self._expire_timer = self.loop.call_later(self.config.expire_interval_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._arm()
        self.expire()

    def expire(self) -> None:
        """Check every connection once and close idle, blocked and slow ones. Runs by itself every second."""
        now_ns = self.clock.monotonic_ns()
        for connection in list(self.connections):
            connection.expire(now_ns)
        for acceptor in self._acceptors:
            acceptor.expire(now_ns)
        self._find_silent(now_ns)
        if self.refused_count != self._refused_logged:
            self._log_refused()

    def _find_silent(self, now_ns: int) -> None:
        """Note, while connections are refused or nearly, which ones could give way."""
        self._silent = {}
        crowded = {host for host, _ in self._of_host.most_common(8) if not self._has_room(host)}
        if not crowded and len(self.connections) < self.config.connections_max * 9 // 10:
            return
        found = [each for each in self.connections if not _has_spoken(each) and now_ns - each.opened_ns > SILENT_NS]
        for each in sorted(found, key=lambda each: -each.opened_ns):
            self._silent.setdefault(each.host, []).append(each)

    def _log_refused(self) -> None:
        self.log.warning(
            "connections_refused",
            count=self.refused_count - self._refused_logged,
            connections_max=self.config.connections_max,
            connections_per_address_max=self.config.connections_per_address_max,
            last_host=self._refused_host,
            silent_closed=self.silent_closed,
        )
        self._refused_logged = self.refused_count


def _has_spoken(connection: Connection) -> bool:
    """Return whether any byte has come from the peer or gone to it."""
    return connection.touched or connection.was_touched
