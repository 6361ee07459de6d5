"""The floor answers every message once, in order."""

import asyncio
from pathlib import Path

from bench.lean.echo import BODY_BYTES, EchoClient, EchoServer
from bench.peers.base import Settings


async def _send(target: dict[str, object]) -> None:
    client = EchoClient(target)
    await client.open()
    async with asyncio.timeout(30):
        await client.send("t", bytes(BODY_BYTES))
        await client.send_many("t", bytes(BODY_BYTES), 500, "")
    await client.close()


def test_each_message_has_an_answer(tmp_path: Path) -> None:
    """However the stream is cut."""
    server = EchoServer(tmp_path, Settings())
    server.start()
    try:
        asyncio.run(_send(server.target))
    finally:
        server.stop()
