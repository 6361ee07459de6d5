"""A peer that speaks frames in any codec, keeps every answer, and obeys no refusal."""

import asyncio
import time
from typing import Any

from pocketmq.remoting.codec import Response, decode_response_of, encode_request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import FRAME_BYTES_MAX, MSGPACK, SCRATCH_BYTES, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader, SendMessageV2RequestHeader


class RawClient:
    """One connection. ``answers``: opaque → response; ``sent_ns``, ``answered_ns``: times on the monotonic clock."""

    def __init__(self, port: int, serialize_type: int = MSGPACK) -> None:
        self._port = port
        self._serialize_type = serialize_type
        self._codes: dict[int, int] = {}
        self._opaque = 0
        self._reader: Any = None
        self._writer: Any = None
        self._task: Any = None
        self._news = asyncio.Event()
        self.answers: dict[int, Response] = {}
        self.sent_ns: dict[int, int] = {}
        self.answered_ns: dict[int, int] = {}

    async def __aenter__(self) -> "RawClient":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()
        self._writer.close()

    def post(self, code: int, header: Any = None, body: bytes = b"", *, oneway: bool = False) -> int:
        """Write a request without waiting; return its opaque."""
        self._opaque += 1
        opaque = self._opaque
        buffers = encode_request(code, opaque, header, body, serialize_type=self._serialize_type, oneway=oneway)
        if not oneway:
            self._codes[opaque] = int(code)
        self.sent_ns[opaque] = time.monotonic_ns()
        self._writer.write(b"".join(bytes(buffer) for buffer in buffers))
        return opaque

    def post_send(self, body: bytes = b"hello", *, topic: str = "T", queue_id: int = 0, oneway: bool = False) -> int:
        """Post SEND_MESSAGE_V2."""
        header = SendMessageV2RequestHeader("producers", topic, "TBW102", 4, queue_id, 0, 1_700_000_000_000, 0)
        return self.post(RequestCode.SEND_MESSAGE_V2, header, body, oneway=oneway)

    def post_append(self, record: bytes, *, topic: str = "T", queue_id: int = 0) -> int:
        """Post a native append of one record."""
        header = NativeAppendRequestHeader("producers", True, [(topic, queue_id, 1)], 10_000)
        return self.post(RequestCode.NATIVE_APPEND, header, len(record).to_bytes(4, "big") + record)

    async def drain(self) -> None:
        """Wait while the kernel's buffer is full."""
        await self._writer.drain()

    async def answer(self, opaque: int) -> Response:
        """Wait for the answer to a request and return it; the test's timeout ends the wait."""
        while opaque not in self.answers:
            self._news.clear()
            await self._news.wait()
        return self.answers[opaque]

    async def _read(self) -> None:
        decoder = FrameDecoder(new_scratch(), FrameBudget(FRAME_BYTES_MAX + SCRATCH_BYTES))
        while data := await self._reader.read(65_536):
            for frame in decoder.feed(data):
                response = decode_response_of(frame, self._codes.get)
                assert response is not None
                assert response.opaque not in self.answers, "one request, two answers"
                self.answers[response.opaque] = response
                self.answered_ns[response.opaque] = time.monotonic_ns()
            self._news.set()
