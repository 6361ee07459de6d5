"""Publishes ports as an engine does: ``python forward.py 9876=172.30.0.2:19876 ...`` listens on 127.0.0.1.

Imports only the standard library; runs in the network of the test's host.
"""

import asyncio
import sys


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end of one side."""
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:  # the other side has gone
        pass
    finally:
        writer.close()


async def publish(port: int, host: str, to_port: int) -> asyncio.Server:
    """Listen, and connect each client to the container."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(host, to_port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pipe(reader, back), pipe(there, writer))

    return await asyncio.start_server(connected, "127.0.0.1", port)


async def main() -> None:
    """Publish all ports, say so, and go on until the process is killed."""
    for pair in sys.argv[1:]:
        port, _, target = pair.partition("=")
        host, _, to_port = target.partition(":")
        await publish(int(port), host, int(to_port))
    print("published", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
