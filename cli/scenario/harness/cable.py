"""A network cable that a scenario can cut: bytes in transit are held back, and no connection is closed.

Lives here: ``Cable``, a forwarder of TCP connections.

A cut forwards nothing in either direction, like a dead switch; both sides find out by their own timeouts. Bytes sent
during a cut arrive after it, as with TCP.
"""

import asyncio
import contextlib

CHUNK_BYTES = 65_536


class Cable:
    """Listens on a free port of 127.0.0.1 and forwards connections to ``target`` (host:port)."""

    def __init__(self, target: str) -> None:
        self.address = ""
        self._target = target
        self._whole = asyncio.Event()
        self._whole.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Forward nothing from now on."""
        self._whole.clear()

    def heal(self) -> None:
        """Forward again."""
        self._whole.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        try:
            await self._whole.wait()
            there_reader, there_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        except asyncio.CancelledError:
            writer.close()
            raise
        pumps = [
            asyncio.ensure_future(self._pump(reader, there_writer)),
            asyncio.ensure_future(self._pump(there_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for each in (writer, there_writer):
                with contextlib.suppress(OSError, RuntimeError):
                    each.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._whole.wait()
            writer.write(data)
            await writer.drain()
