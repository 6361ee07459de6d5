"""A link that misbehaves inside a TCP connection: late, cut in one direction, doubled, out of order, damaged.

Lives here: ``TcpProxy`` and the ``Direction`` whose faults a test sets.

Bytes of a TCP connection never double, swap or change by themselves; a middlebox, a bad memory or a faulty driver does
it. The reader must notice.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Final, Self

CHUNK_BYTES: Final = 16_384


@dataclass(slots=True)
class Direction:
    """Faults of one direction, for all connections. Shares are of chunks of up to 16 KiB."""

    delay_ms: float = 0.0
    double_share: float = 0.0
    swap_share: float = 0.0
    damage_share: float = 0.0
    chunks: int = 0
    faults: int = 0
    """How many chunks were doubled, swapped or damaged so far."""
    _open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._open.set()

    def cut(self) -> None:
        """Forward nothing; incoming bytes wait in the sender's and our buffers."""
        self._open.clear()

    def heal(self) -> None:
        """Forward again, without damage."""
        self.double_share = self.swap_share = self.damage_share = self.delay_ms = 0.0
        self._open.set()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, random: Random) -> None:
        """Forward until the sender ends the stream, then end it, too."""
        held = b""
        while data := await reader.read(CHUNK_BYTES):
            await self._open.wait()
            if self.delay_ms:
                await asyncio.sleep(self.delay_ms / 1000)
            self.chunks += 1
            if held:
                data, held = data + held, b""
            elif random.random() < self.swap_share:
                self.faults += 1
                held = data
                continue
            if random.random() < self.double_share:
                self.faults += 1
                data += data
            if random.random() < self.damage_share:
                self.faults += 1
                at = random.randrange(len(data))
                data = data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
            writer.write(data)
            await writer.drain()
        if held:
            writer.write(held)
        writer.write_eof()


class TcpProxy:
    """Listens on ``address`` and forwards to ``target`` (``host:port``). ``up``: towards the target; ``down``: back."""

    def __init__(self, target: str, seed: int, host: str = "127.0.0.1") -> None:
        self.target = target
        self.up = Direction()
        self.down = Direction()
        self.connections = 0
        self._host = host
        self._random = Random(seed)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """Return the listening address."""
        assert self._server is not None
        return f"{self._host}:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Cut both directions."""
        self.up.cut()
        self.down.cut()

    def heal(self) -> None:
        """Repair both directions."""
        self.up.heal()
        self.down.heal()

    def drop_all(self) -> None:
        """Close every connection."""
        for task in self._tasks:
            task.cancel()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._host, 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.drop_all()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        self.connections += 1
        try:
            there_reader, there_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        pumps = [
            asyncio.ensure_future(self.up.pump(reader, there_writer, self._random)),
            asyncio.ensure_future(self.down.pump(there_reader, writer, self._random)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for each in (writer, there_writer):
                with contextlib.suppress(OSError, RuntimeError):
                    each.close()
