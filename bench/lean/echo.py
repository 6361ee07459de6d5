"""The floor: a uvloop server that answers each message of a send's size with as many bytes as a send's answer has.

Lives here: ``EchoServer``, ``EchoClient`` (one connection), the server process (``python -m bench.lean.echo``). Both
ends are protocols in Python; a send awaits a future, as every client's does.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from bench.clients.base import Client, ReadTimer
from bench.peers.base import Server
from pocketmq.remoting.loop import new_event_loop

HEAD_BYTES: Final = 160
"""What a frame with one record has beside the body."""
ANSWER_BYTES: Final = 56
BODY_BYTES: Final = 1024
FRAME_BYTES: Final = HEAD_BYTES + BODY_BYTES


class _Serving(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._received_bytes = 0

    def data_received(self, data: bytes) -> None:
        whole, self._received_bytes = divmod(self._received_bytes + len(data), FRAME_BYTES)
        if whole:
            self._transport.write(bytes(ANSWER_BYTES * whole))


class _Asking(asyncio.Protocol):
    def __init__(self) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        self._received_bytes = 0

    def data_received(self, data: bytes) -> None:
        whole, self._received_bytes = divmod(self._received_bytes + len(data), ANSWER_BYTES)
        for _ in range(whole):
            self.waiting.popleft().set_result(None)


class EchoServer(Server):
    """One process of this module."""

    name = "echo"

    @classmethod
    def obtain(cls) -> str:
        return ""

    def start(self) -> None:
        [port] = self.ports(1)
        self.launch([sys.executable, "-m", "bench.lean.echo", str(port)], "echo", port)

    @property
    def target(self) -> dict[str, Any]:
        return {"port": self.ports(1)[0]}


class EchoClient(Client):
    """One connection; only ``send`` has a meaning."""

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._transport, self._protocol = await loop.create_connection(_Asking, "127.0.0.1", self.target["port"])
        self._head = bytes(HEAD_BYTES)

    async def close(self) -> None:
        self._transport.close()

    async def create(self, topics: Sequence[str], queues: int) -> None: ...

    async def send(self, topic: str, body: bytes) -> None:
        answered = asyncio.get_running_loop().create_future()
        self._protocol.waiting.append(answered)
        self._transport.write(self._head + body)
        await answered

    async def send_many(self, topic: str, body: bytes, count: int, how: str) -> None:
        await asyncio.gather(*(self.send(topic, body) for _ in range(count)))

    async def read(self, topic: str, how: str, expected: int, timer: ReadTimer) -> int:
        raise NotImplementedError

    async def follow(self, topic: str, saw: Callable[[bytes], None], ready: asyncio.Event) -> None:
        raise NotImplementedError


def main() -> None:
    """Serve until the process is ended."""
    loop = new_event_loop()
    loop.run_until_complete(loop.create_server(_Serving, "127.0.0.1", int(sys.argv[1])))
    loop.run_forever()


if __name__ == "__main__":
    main()
