"""A network without sockets: pairs of transports in memory, and a scripted slave."""

from collections import deque
from collections.abc import Sequence

import msgspec

from pocketmq.common.hashes import crc32
from pocketmq.store.ha import wire
from pocketmq.store.ha.transport import Transport, TransportError

WINDOW_BYTES = 64 << 10


class _Pipe:
    def __init__(self, window_bytes: int) -> None:
        self.data = bytearray()
        self.window_bytes = window_bytes
        self.is_cut = False


class MemoryTransport:
    """One end of a connection; each direction holds at most ``window_bytes``. Never waits: ``wait_ms`` is ignored."""

    def __init__(self, peer: str, receives: _Pipe, sends: _Pipe) -> None:
        self.peer = peer
        self.receives = receives
        self.sends = sends
        self.is_closed = False

    def receive_into(self, buffer: memoryview, wait_ms: float) -> int | None:
        if self.is_closed:
            raise TransportError("closed", why="closed here")
        pipe = self.receives
        if not pipe.data:
            return 0 if pipe.is_cut else None
        count = min(len(buffer), len(pipe.data))
        assert count, "nobody asks for nothing"
        buffer[:count] = pipe.data[:count]
        del pipe.data[:count]
        return count

    def send(self, parts: Sequence[bytes | memoryview]) -> int:
        if self.is_closed or self.sends.is_cut:
            raise TransportError("broken", why="the connection is cut")
        data = b"".join(parts)[: self.sends.window_bytes - len(self.sends.data)]
        self.sends.data += data
        return len(data)

    def wait_writable(self, wait_ms: float) -> bool:
        return len(self.sends.data) < self.sends.window_bytes

    def cut(self) -> None:
        self.receives.is_cut = self.sends.is_cut = True

    def close(self) -> None:
        self.cut()
        self.is_closed = True


def pair(
    peer_of_master: str = "10.0.0.2:5000", window_bytes: int = WINDOW_BYTES
) -> tuple[MemoryTransport, MemoryTransport]:
    """Return the master's end and the slave's end of a connection."""
    up, down = _Pipe(window_bytes), _Pipe(window_bytes)
    return MemoryTransport(peer_of_master, up, down), MemoryTransport("10.0.0.1:10912", down, up)


class MemoryListener:
    """A port: ``accept`` returns the transports put into ``waiting``."""

    def __init__(self, bind_address: str = "", port: int = 0) -> None:
        self.port = port or 10912
        self.waiting: deque[Transport] = deque()
        self.is_closed = False

    def accept(self, wait_ms: float) -> Transport | None:
        if self.is_closed:
            raise TransportError("closed", why="closed here")
        return self.waiting.popleft() if self.waiting else None

    def close(self) -> None:
        self.is_closed = True


class ScriptedSlave:
    """The slave's side of the protocol, step by step, without a store: ``log`` has the received bytes."""

    def __init__(self, listener: MemoryListener, peer: str = "10.0.0.2:5000", window_bytes: int = WINDOW_BYTES) -> None:
        master_end, self.transport = pair(peer, window_bytes)
        listener.waiting.append(master_end)
        self.decoder = wire.FrameDecoder(wire.FROM_MASTER)
        self.start_offset = 0
        self.log = bytearray()
        self.heartbeats: list[wire.Heartbeat] = []
        self.data: list[tuple[int, int, int, int]] = []  # (offset, bytes, master end, confirm offset)
        self.echo_ms = 0
        self.welcome: wire.Welcome | None = None
        self.refused: wire.Refused | None = None
        self.is_closed = False

    def raw(self, data: bytes) -> None:
        assert self.transport.send([data]) == len(data)

    def hello(self, **changes: object) -> None:
        self.raw(wire.PREAMBLE + wire.encode_hello(make_hello(**changes)))

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.log)

    def receive(self, bytes_max: int = 1 << 30) -> None:
        """Read the available frames; check each as a slave does."""
        while bytes_max > 0:
            view = self.decoder.buffer()[:bytes_max]
            count = self.transport.receive_into(view, 0)
            if not count:
                self.is_closed = count == 0
                return
            bytes_max -= count
            self.decoder.received(count)
            while (message := self.decoder.next()) is not None:
                self._take(message)

    def _take(self, message: wire.Message) -> None:
        if isinstance(message, wire.Welcome):
            self.welcome, self.start_offset = message, message.start_offset
        elif isinstance(message, wire.Refused):
            self.refused = message
        elif isinstance(message, wire.Heartbeat):
            self.heartbeats.append(message)
            self.echo_ms = message.now_ms
        else:
            assert isinstance(message, wire.Data)
            assert message.offset == self.end_offset, "each body continues where the one before it ended"
            assert crc32(message.body) == message.crc
            self.log += message.body
            self.echo_ms = message.now_ms
            self.data.append((message.offset, len(message.body), message.master_end, message.confirm_offset))

    def ack(self, offset: int | None = None) -> None:
        end = self.end_offset if offset is None else offset
        self.raw(wire.encode_ack(wire.Ack(end, end, self.echo_ms)))


def make_hello(**changes: object) -> wire.Hello:
    """Return the HELLO of an empty slave of the tests' group, with ``changes``."""
    fields: dict[str, object] = {
        "cluster": "C",
        "broker_name": "b",
        "broker_id": 1,
        "node_id": "slave1",
        "epochs": [],
        "end_offset": 0,
        "min_offset": 0,
        "segment_bytes": 8192,
    }
    return msgspec.convert(fields | changes, wire.Hello)
