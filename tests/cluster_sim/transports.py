"""What programs see of a connection: asyncio's transports, and the transports of replication, which block.

Lives here: ``LoopTransport``; ``BlockingTransport``, ``BlockingListener``, ``connect_blocking``, ``listen_blocking``.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pocketmq.common.addresses import address_text
from pocketmq.common.errors import ConfigError
from pocketmq.store.ha.transport import TransportError
from tests.cluster_sim.kernel import NS_PER_MS, Strand
from tests.cluster_sim.network import BUFFER_BYTES, Endpoint
from tests.cluster_sim.threads import present

if TYPE_CHECKING:
    from tests.cluster_sim.machines import Process


class LoopTransport(asyncio.Transport):
    """A connection in the loop of a process."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__({"peername": endpoint.peer, "sockname": endpoint.local})
        self._endpoint = endpoint
        self._loop: Any = endpoint.process.loop
        self._protocol: Any = None
        self._closing = False
        self._lost = False
        self._paused = False
        self._writing_paused = False
        self._waiting: deque[bytes] = deque()
        self._ended: list[Exception | None] = []
        self._high, self._low = 65_536, 16_384

    def begin(self, protocol: Any) -> None:
        """Hand the connection to its protocol. Loop."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._endpoint.attach(self._arrived, self._end_came, self._space)

    # ---- reading

    def _arrived(self, data: bytes) -> None:
        self._loop.call_soon(self._read, data)

    def _read(self, data: bytes) -> None:
        self._waiting.append(data)
        if not self._paused:
            self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting and not self._paused and not self._closing:
            data = memoryview(self._waiting.popleft())
            if not hasattr(self._protocol, "get_buffer"):
                self._endpoint.was_read(len(data))
                self._protocol.data_received(bytes(data))
                continue
            buffer = memoryview(self._protocol.get_buffer(-1))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            if count < len(data):
                self._waiting.appendleft(bytes(data[count:]))
            self._endpoint.was_read(count)
            self._protocol.buffer_updated(count)
        if self._ended and not self._waiting and not self._closing:
            self._take_end(self._ended[0])

    def _end_came(self, error: Exception | None) -> None:
        self._loop.call_soon(self._note_end, error)

    def _note_end(self, error: Exception | None) -> None:
        self._ended.append(error)
        if error is not None or (not self._waiting and not self._paused):
            self._take_end(error)

    def _take_end(self, error: Exception | None) -> None:
        if self._lost:
            return
        if error is None:
            if not self._closing and not self._protocol.eof_received():
                self.close()
        else:
            self._closing = True
            self._lose(error)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._pass_on)

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    # ---- writing

    def write(self, data: Any) -> None:
        if self._closing:
            return
        self._endpoint.send(bytes(data))
        if not self._writing_paused and self.get_write_buffer_size() > self._high:
            self._writing_paused = True
            self._protocol.pause_writing()

    def _space(self) -> None:
        if self._writing_paused and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._loop.call_soon(self._protocol.resume_writing)

    def get_write_buffer_size(self) -> int:
        return max(0, self._endpoint.unsent - BUFFER_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 65_536 if high is None else high
        self._low = self._high // 4 if low is None else low

    # ---- the end

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._endpoint.close()
            self._lose(None)

    def abort(self) -> None:
        self._closing = True
        self._endpoint.reset()
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._loop.call_soon(self._protocol.connection_lost, error)


class BlockingTransport:
    """``store.ha.transport.Transport``."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.peer = address_text(*endpoint.peer)
        self._endpoint = endpoint
        self._bytes = bytearray()
        self._end: list[Exception | None] = []
        self._readers: deque[Strand] = deque()
        self._writers: deque[Strand] = deque()
        endpoint.attach(self._arrived, self._ended, self._space)

    def _arrived(self, data: bytes) -> None:
        self._bytes += data
        present().wake(self._readers)

    def _ended(self, error: Exception | None) -> None:
        self._end.append(error)
        present().wake(self._readers)
        present().wake(self._writers)

    def _space(self) -> None:
        present().wake(self._writers)

    def receive_into(self, buffer: memoryview, wait_ms: float) -> int | None:
        if not self._bytes and not self._end and wait_ms > 0:
            present().wait(self._readers, int(wait_ms * NS_PER_MS))
        if self._bytes:
            count = min(len(buffer), len(self._bytes))
            buffer[:count] = self._bytes[:count]
            del self._bytes[:count]
            self._endpoint.was_read(count)
            return count
        if not self._end:
            return None
        if self._end[0] is not None:
            raise TransportError("HA connection broken", why=f"{self.peer}: {self._end[0]}")
        return 0

    def send(self, parts: Sequence[bytes | memoryview]) -> int:
        if self._endpoint.closed:
            raise TransportError("HA connection broken", why=f"{self.peer}: closed")
        data = b"".join(parts)[: max(0, BUFFER_BYTES - self._endpoint.unsent)]
        self._endpoint.send(data)
        return len(data)

    def wait_writable(self, wait_ms: float) -> bool:
        if self._endpoint.unsent >= BUFFER_BYTES and not self._endpoint.closed:
            present().wait(self._writers, int(wait_ms * NS_PER_MS))
        return self._endpoint.unsent < BUFFER_BYTES or self._endpoint.closed

    def cut(self) -> None:
        self._endpoint.close()
        if not self._end:
            self._ended(None)

    def close(self) -> None:
        self.cut()


class BlockingListener:
    """``store.ha.transport.Listener``."""

    def __init__(self, process: "Process", port: int) -> None:
        self._process = process
        self._waiting: deque[BlockingTransport] = deque()
        self._accepting: deque[Strand] = deque()
        self._closed = False
        self.port = process.machine.network.listen(process, process.machine.host, port, self._came)

    def _came(self, endpoint: Endpoint) -> None:
        self._waiting.append(BlockingTransport(endpoint))
        present().wake(self._accepting)

    def accept(self, wait_ms: float) -> BlockingTransport | None:
        if not self._waiting and not self._closed:
            present().wait(self._accepting, int(wait_ms * NS_PER_MS))
        if self._closed:
            raise TransportError("no connection accepted", why="closed")
        return self._waiting.popleft() if self._waiting else None

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._process.machine.network.unlisten(self._process.machine.host, self.port)
            present().wake(self._accepting)


def present_process() -> "Process":
    """Return the process whose code runs."""
    strand = present().current
    assert strand is not None
    assert strand.owner is not None
    return strand.owner  # type: ignore[return-value]


def listen_blocking(bind_address: str, port: int) -> BlockingListener:
    """``store.ha.transport.listen``."""
    try:
        return BlockingListener(present_process(), port)
    except OSError as error:
        raise ConfigError("HA port not opened", why=str(error)) from error


def connect_blocking(address: str, timeout_ms: float) -> BlockingTransport:
    """``store.ha.transport.connect``."""
    process = present_process()
    host, _, port = address.rpartition(":")
    found: list[Endpoint | OSError] = []
    waiting: deque[Strand] = deque()
    late = False

    def done(result: "Endpoint | OSError") -> None:
        if late:
            if isinstance(result, Endpoint):
                result.reset()
            return
        found.append(result)
        present().wake(waiting)

    process.machine.network.dial(process, host, int(port), done)
    present().wait(waiting, int(timeout_ms * NS_PER_MS))
    late = True
    if not found or isinstance(found[0], OSError):
        raise TransportError("no connection to the master", why=f"{address}: {found[0] if found else 'no answer'}")
    return BlockingTransport(found[0])
