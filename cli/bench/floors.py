"""The best that this machine can do with the same tools: the floor beside each measurement of ``pocketmq bench``.

Lives here: an echo over uvloop (the cost of a round trip without a broker) and a stream from a socket into a file (the
cost of moving bytes without parsing them), each with its server in its own process, as the broker is.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pocketmq.remoting.loop import new_event_loop

READ_BYTES = 1 << 18


@dataclass(slots=True)
class Floor:
    """One measurement: ``rate`` in messages per second, ``p50_ms`` of one round trip where the case has one."""

    name: str
    rate: float
    p50_ms: float | None


class _EchoServer(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has no base class in common with asyncio's

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class _FileServer(asyncio.BufferedProtocol):
    """Writes received bytes to a file, and confirms with one byte when the client has sent all."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._buffer = memoryview(bytearray(1 << 20))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has no base class in common with asyncio's

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        os.write(self._file, self._buffer[:nbytes])

    def eof_received(self) -> bool:
        os.close(self._file)
        self.transport.write(b"!")
        return False


def serve(kind: str, path: str) -> None:
    """Serve one floor on an ephemeral port of 127.0.0.1 until the parent ends this process; print the port first."""
    loop = new_event_loop()

    def make() -> asyncio.BaseProtocol:
        return _EchoServer() if kind == "echo" else _FileServer(path)

    server = loop.run_until_complete(loop.create_server(make, "127.0.0.1", 0))
    print(server.sockets[0].getsockname()[1], flush=True)
    loop.run_forever()


class _EchoClient(asyncio.Protocol):
    """Keeps ``in_flight`` messages of ``size_bytes`` on the wire until ``count`` have come back."""

    def __init__(self, size_bytes: int, in_flight: int, count: int) -> None:
        self.size_bytes = size_bytes
        self.in_flight = in_flight
        self.left = count
        self.received_bytes = 0
        self.times: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has no base class in common with asyncio's
        self.payload = bytes(self.size_bytes)
        self.sent_at = time.perf_counter()
        self.transport.write(self.payload * self.in_flight)

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        whole, self.received_bytes = divmod(self.received_bytes, self.size_bytes)
        if not whole:
            return
        self.left -= whole
        if self.in_flight == 1:
            now = time.perf_counter()
            self.times.append(now - self.sent_at)
            self.sent_at = now
        if self.left <= 0:
            if not self.done.done():
                self.done.set_result(None)
            return
        self.transport.write(self.payload * whole)


async def echo(port: int, *, size_bytes: int, in_flight: int, count: int) -> Floor:
    """Measure ``count`` round trips of ``size_bytes`` with ``in_flight`` on the wire."""
    client = _EchoClient(size_bytes, in_flight, count)
    begin = time.perf_counter()
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", port)
    await client.done
    elapsed = time.perf_counter() - begin
    transport.close()
    p50_ms = sorted(client.times)[len(client.times) // 2] * 1000 if client.times else None
    return Floor(f"uvloop echo, {size_bytes} B, {in_flight} in flight", count / elapsed, p50_ms)


async def stream_to_file(port: int, *, size_bytes: int, count: int) -> Floor:
    """Measure ``count`` messages of ``size_bytes`` sent as one stream that the other process writes to a file."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    per_write = max(1, (1 << 20) // size_bytes)
    chunk = bytes(size_bytes * per_write)
    begin = time.perf_counter()
    for _ in range(count // per_write):
        writer.write(chunk)
        await writer.drain()
    writer.write_eof()
    await reader.readexactly(1)
    elapsed = time.perf_counter() - begin
    writer.close()
    return Floor(f"socket to file, {size_bytes} B", count // per_write * per_write / elapsed, None)


def _start_server(kind: str, path: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "pocketmq.cli.bench.floors", kind, path]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def measure(directory: Path, *, quick: bool) -> list[Floor]:
    """Measure all floors; files go to ``directory`` and are removed."""
    scale = 1 if quick else 4
    floors = []
    with tempfile.TemporaryDirectory(dir=directory) as name:
        for kind in ("echo", "file"):
            with _start_server(kind, str(Path(name) / "stream")) as server:
                assert server.stdout is not None
                try:
                    port = int(server.stdout.readline())
                    if kind == "echo":
                        floors.append(await echo(port, size_bytes=1024, in_flight=1, count=5_000 * scale))
                        floors.append(await echo(port, size_bytes=1024, in_flight=64, count=100_000 * scale))
                    else:
                        floors.append(await stream_to_file(port, size_bytes=1024, count=500_000 * scale))
                        floors.append(await stream_to_file(port, size_bytes=100, count=2_000_000 * scale))
                finally:
                    server.terminate()
    return floors


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
