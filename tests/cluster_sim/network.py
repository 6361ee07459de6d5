"""A network in memory: links with delays, cuts in one or both directions, resets.

Lives here: ``Network``, ``Endpoint`` (one side of a connection). ``transports.py`` has what programs see of it.

A connection is as TCP makes it: bytes arrive in order, once, in pieces of any size. What is sent over a link that is
cut waits until it heals; an end whose bytes are not confirmed for ``USER_TIMEOUT_NS`` gives up. The end of a process
resets its connections; the end of a machine says nothing, and its peers learn of it when they send.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tests.cluster_sim.kernel import NS_PER_MS, Kernel

if TYPE_CHECKING:
    from tests.cluster_sim.machines import Process

USER_TIMEOUT_NS: Final = 20_000 * NS_PER_MS
SYN_NS: Final = 1_000 * NS_PER_MS
"""After this time an attempt to connect is repeated."""
BUFFER_BYTES: Final = 256 << 10
"""What the systems of both ends hold of one direction."""
FIN: Final = b""

Address = tuple[str, int]
Accept = Callable[["Endpoint"], None]


class Endpoint:
    """One side. ``on_data``, ``on_end`` and ``on_space`` are called as events of ``process``."""

    def __init__(self, network: "Network", process: "Process", local: Address, peer: Address) -> None:
        self.network = network
        self.process = process
        self.local = local
        self.peer = peer
        self.other: Endpoint
        self.on_data: Callable[[bytes], None] = self._keep
        self.on_end: Callable[[Exception | None], None] = self._keep_end
        self.on_space: Callable[[], None] = lambda: None
        self.kept: list[bytes] = []
        self.kept_end: list[Exception | None] = []
        self.unread = 0
        """Bytes that ``other`` has sent and the program here has not read."""
        self.closed = False
        self.held: deque[bytes | Exception] = deque()
        """Waits for the link."""
        self._arrives_ns = 0
        self._gives_up = False

    def _keep(self, data: bytes) -> None:
        self.kept.append(data)

    def _keep_end(self, error: Exception | None) -> None:
        self.kept_end.append(error)

    def attach(
        self,
        on_data: Callable[[bytes], None],
        on_end: Callable[[Exception | None], None],
        on_space: Callable[[], None],
    ) -> None:
        """Let a program read what has come, and what will."""
        self.on_data, self.on_end, self.on_space = on_data, on_end, on_space
        kept, self.kept = self.kept, []
        for each in kept:
            on_data(each)
        for end in self.kept_end:
            on_end(end)

    # ---- sending

    @property
    def unsent(self) -> int:
        """Bytes that the peer's program has not read."""
        return self.other.unread

    def send(self, data: bytes) -> None:
        if self.closed or not data:
            return
        self.other.unread += len(data)
        rng = self.network.kernel.rng
        if len(data) > 64 and rng.random() < 0.05:  # in two pieces
            cut = rng.randrange(1, len(data))
            self._put(data[:cut])
            data = data[cut:]
        self._put(data)

    def close(self) -> None:
        """Send what was given, then the end."""
        if not self.closed:
            self._put(FIN)
            self.closed = True

    def reset(self) -> None:
        """Tell the peer that this side has gone."""
        if not self.closed:
            self.closed = True
            self._put(ConnectionResetError("reset by peer"))

    def _put(self, item: "bytes | Exception") -> None:
        network = self.network
        if network.is_cut(self.local[0], self.peer[0]):
            self.held.append(item)
        else:
            self._deliver(item)
        if not self._gives_up and network.is_interrupted(self.local[0], self.peer[0]):
            self._gives_up = True
            network.kernel.after(USER_TIMEOUT_NS, self.process, self._give_up)

    def _give_up(self) -> None:
        self._gives_up = False
        if not self.closed and self.network.is_interrupted(self.local[0], self.peer[0]):
            self.lose(TimeoutError("connection timed out"))

    def _deliver(self, item: "bytes | Exception") -> None:
        network, other = self.network, self.other
        kernel = network.kernel
        self._arrives_ns = max(self._arrives_ns + 1, kernel.now_ns + network.delay_ns(self.local[0], self.peer[0]))
        kernel.at(self._arrives_ns, other.process, lambda: other.take(item))

    def healed(self) -> None:
        """Send what has waited for the link."""
        held, self.held = self.held, deque()
        for item in held:
            self._put(item)

    # ---- receiving

    def take(self, item: "bytes | Exception") -> None:
        if isinstance(item, Exception):
            self.lose(item)
        elif self.closed:
            if item:
                self.network.answer_reset(self)
        elif item:
            self.on_data(item)
        else:
            self.on_end(None)

    def was_read(self, count: int) -> None:
        self.unread -= count
        self.other.process.machine.network.kernel.after(1000, self.other.process, self.other.on_space)

    def lose(self, error: Exception) -> None:
        """The connection is broken on this side."""
        if not self.closed:
            self.closed = True
            self.on_end(error)


class Network:
    """All links between machines, by the hosts at their ends."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.listeners: dict[Address, tuple[Process, Accept]] = {}
        self.endpoints: list[Endpoint] = []
        self.machines: dict[str, Any] = {}
        self.cuts: dict[tuple[str, str], int] = {}
        self.slow: dict[tuple[str, str], int] = {}
        self.connections = 0
        self.twice = 0.02
        """How many attempts to connect arrive twice."""

    # ---- links

    def is_cut(self, source: str, target: str) -> bool:
        return source != target and (source, target) in self.cuts

    def is_interrupted(self, one: str, other: str) -> bool:
        """Whether no confirmation can come back."""
        machine = self.machines.get(other)
        return self.is_cut(one, other) or self.is_cut(other, one) or machine is None or not machine.is_on

    def delay_ns(self, source: str, target: str) -> int:
        rng = self.kernel.rng
        base = self.slow.get((source, target), 0)
        extra = rng.randrange(20, 400) * 1000 if rng.random() < 0.97 else rng.randrange(1, 30) * NS_PER_MS
        return extra + (int(base * rng.random()) if base else 0)

    def cut(self, source: str, target: str) -> None:
        """Let nothing through in this direction."""
        self.cuts[source, target] = self.cuts.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        """Take one cut back."""
        left = self.cuts[source, target] - 1
        if left:
            self.cuts[source, target] = left
            return
        del self.cuts[source, target]
        for endpoint in list(self.endpoints):
            if (endpoint.local[0], endpoint.peer[0]) == (source, target):
                endpoint.healed()

    # ---- ports

    def listen(self, process: "Process", host: str, port: int, accept: Accept) -> int:
        if port == 0:
            port = 20_000 + self.kernel.number() % 40_000
        if (host, port) in self.listeners:
            raise OSError(98, "Address already in use")
        self.listeners[host, port] = (process, accept)
        return port

    def unlisten(self, host: str, port: int) -> None:
        self.listeners.pop((host, port), None)

    # ---- connections

    def dial(self, process: "Process", host: str, port: int, done: Callable[["Endpoint | OSError"], None]) -> None:
        """Try to connect; ``done`` is called as an event of ``process``, or never."""
        source = process.machine.host
        kernel = self.kernel

        def arrive(is_copy: bool) -> None:
            machine = self.machines.get(host)
            if self.is_interrupted(source, host):
                if not is_copy:
                    kernel.after(SYN_NS, process, lambda: arrive(False))
                return
            found = self.listeners.get((host, port))
            if machine is None or found is None:
                if not is_copy:
                    kernel.after(
                        self.delay_ns(host, source), process, lambda: done(ConnectionRefusedError(111, "refused"))
                    )
                return
            listening, accept = found
            near, far = self._pair(process, listening, (source, machine.next_port()), (host, port))
            kernel.after(1, listening, lambda: accept(far))
            if is_copy:  # the client knows nothing of it, and answers whatever comes with a reset
                kernel.after(self.delay_ns(source, host), process, near.reset)
            else:
                kernel.after(self.delay_ns(host, source), process, lambda: done(near))

        kernel.after(self.delay_ns(source, host), process, lambda: arrive(False))
        if kernel.rng.random() < self.twice:
            kernel.after(2 * self.delay_ns(source, host), process, lambda: arrive(True))

    def _pair(self, one: "Process", other: "Process", local: Address, remote: Address) -> tuple[Endpoint, Endpoint]:
        near, far = Endpoint(self, one, local, remote), Endpoint(self, other, remote, local)
        near.other, far.other = far, near
        self.endpoints = [each for each in self.endpoints if not (each.closed and each.other.closed and not each.held)]
        self.endpoints += [near, far]
        self.connections += 1
        return near, far

    def answer_reset(self, endpoint: Endpoint) -> None:
        """Bytes came for a connection that this side has closed."""
        source, target = endpoint.local[0], endpoint.peer[0]
        if not self.is_cut(source, target):
            other = endpoint.other
            self.kernel.after(
                self.delay_ns(source, target), other.process, lambda: other.lose(ConnectionResetError("reset by peer"))
            )

    # ---- the ends of processes

    def process_died(self, process: "Process", *, silently: bool) -> None:
        """Free its ports and end its connections; the peers of a machine without power learn nothing yet."""
        for address in [address for address, (owner, _) in self.listeners.items() if owner is process]:
            del self.listeners[address]
        for endpoint in list(self.endpoints):
            if endpoint.process is not process or endpoint.closed:
                continue
            if silently:
                endpoint.closed = True
                endpoint.held.clear()
                other = endpoint.other
                self.kernel.after(USER_TIMEOUT_NS, other.process, lambda other=other: self._notice(other))  # type: ignore[misc]
            else:
                endpoint.reset()

    def _notice(self, endpoint: Endpoint) -> None:
        if endpoint.unsent:
            endpoint.lose(TimeoutError("connection timed out"))

    async def connect(self, process: "Process", host: str, port: int) -> Any:
        """Return an asyncio transport. Raises ``OSError``; waits as long as the caller does."""
        from tests.cluster_sim.transports import LoopTransport

        future = process.loop.create_future()

        def done(result: "Endpoint | OSError") -> None:
            if future.done():
                if isinstance(result, Endpoint):
                    result.reset()
            elif isinstance(result, OSError):
                process.loop.call_soon(_fail, future, result)
            else:
                process.loop.call_soon(_succeed, future, result)

        self.dial(process, host, port, done)
        return LoopTransport(await future)


def _fail(future: Any, error: OSError) -> None:
    if not future.done():
        future.set_exception(error)


def _succeed(future: Any, endpoint: Endpoint) -> None:
    if future.done():
        endpoint.reset()
    else:
        future.set_result(endpoint)
