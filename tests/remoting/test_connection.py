"""A connection that fails alone."""

import asyncio
from typing import Any

import pytest

from pocketmq.remoting.codec import decode_response, encode_request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import MSGPACK, Frame, FrameDecoder
from pocketmq.remoting.loop import new_event_loop
from tests.remoting.harness import EchoHandler, Peer, start_server, until

HEART_BEAT = RequestCode.HEART_BEAT


def request_bytes(opaque: int, body: bytes = b"") -> bytes:
    return b"".join(encode_request(HEART_BEAT, opaque, None, body, serialize_type=MSGPACK))


def test_a_frame_that_memory_does_not_suffice_for_closes_its_connection_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error is reported; other connections are served."""

    async def scenario(loop: asyncio.AbstractEventLoop) -> list[dict[str, Any]]:
        problems: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: problems.append(context))
        handler = EchoHandler()
        server = await start_server(handler)
        poor, other = await Peer.connect(server.port), await Peer.connect(server.port)
        await until(lambda: len(handler.opened) == 2)

        def no_memory(at: int, end: int) -> list[Frame]:
            raise MemoryError

        monkeypatch.setattr(FrameDecoder, "_parse", lambda decoder, at, end: no_memory(at, end))
        poor.send(request_bytes(1))
        assert await poor.closed_by_server() == b""
        monkeypatch.undo()
        other.send(request_bytes(2, b"body"))
        assert bytes(decode_response(await other.frame(), HEART_BEAT).body) == b"body"
        await poor.close()
        await other.close()
        await server.stop()
        return problems

    for new_loop in (new_event_loop, asyncio.new_event_loop):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            problems = runner.run(asyncio.wait_for(scenario(runner.get_loop()), 60))
        assert all(isinstance(each["exception"], MemoryError) for each in problems)
