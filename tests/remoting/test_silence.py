"""A connection that answers nothing is left."""

import asyncio
import socket
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.channel import ChannelConfig, ClientChannel
from pocketmq.remoting.codec import decode_request, encode_response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import ConnectionLost, RequestTimeout
from pocketmq.remoting.frame import JSON, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.silence import USER_TIMEOUT_MS, Silence
from tests.remoting.conftest import MemoryLog, Run

SECOND_NS = 1_000_000_000


def silence() -> Silence:
    """Return the judge of a connection with which a frame has arrived at second 0."""
    judge = Silence(timeouts_max=3, silent_ms_min=5_000, half_frame_ms_max=30_000)
    judge.heard(0, 1)
    return judge


def test_three_timeouts_in_five_seconds_of_silence_end_it() -> None:
    """Not before the third, and not before the five seconds."""
    judge = silence()
    assert judge.judge(3 * SECOND_NS, False, 64, 0) == ""
    assert judge.judge(5 * SECOND_NS, False, 0, 0) == "no whole frame for 5000 ms, and 64 requests without an answer"
    judge = silence()
    assert judge.judge(3 * SECOND_NS, False, 1, 0) == ""
    assert judge.judge(6 * SECOND_NS, False, 1, 0) == ""
    assert judge.judge(9 * SECOND_NS, False, 1, 0) != ""


def test_a_connection_that_was_idle_is_not_silent() -> None:
    """A stall of 3 s after a minute without requests: three timeouts at once do not end it, 5 s do."""
    judge = silence()
    assert judge.judge(63 * SECOND_NS, False, 64, 60 * SECOND_NS) == ""
    assert judge.judge(64 * SECOND_NS, False, 1, 61 * SECOND_NS) == ""
    assert judge.judge(65 * SECOND_NS, False, 0, 0) == "no whole frame for 5000 ms, and 65 requests without an answer"


def test_half_a_frame_ends_it_after_its_time() -> None:
    """Also where no request times out; the time begins with the frame, however long the connection was idle."""
    judge = silence()
    assert judge.judge(60 * SECOND_NS, True, 0, 0) == ""
    assert judge.judge(90 * SECOND_NS, True, 0, 0) == ""
    assert judge.judge(91 * SECOND_NS, False, 0, 0) == ""
    assert judge.judge(92 * SECOND_NS, True, 0, 0) == ""
    judge.heard(100 * SECOND_NS, 2)
    assert judge.judge(123 * SECOND_NS, True, 0, 0) == ""
    assert judge.judge(155 * SECOND_NS, True, 0, 0) == "a frame was not complete after 32000 ms"


@given(st.lists(st.tuples(st.integers(0, 4_000), st.booleans(), st.integers(0, 9)), max_size=40))
def test_nothing_ends_it_within_five_seconds_of_a_frame(steps: list[tuple[int, bool, int]]) -> None:
    """For any history of frames and timeouts; a server that answers anything is alive."""
    judge, now_ms, heard_ms = silence(), 0, 0
    for pause_ms, frame, expired in steps:
        now_ms += pause_ms
        if frame:
            heard_ms = now_ms
            judge.heard(now_ms * 1_000_000, judge.frame_count + 1)
        else:
            assert not judge.judge(now_ms * 1_000_000, False, expired, 0) or now_ms - heard_ms >= 5_000


class Server:
    """Answers hello as RocketMQ does, then with ``garbage``, or not at all."""

    def __init__(self, garbage: bytes = b"") -> None:
        self.garbage = garbage
        self.serving: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        decoder = FrameDecoder(new_scratch(), FrameBudget())
        try:
            while data := await reader.read(65_536):
                for frame in decoder.feed(data):
                    request = decode_request(frame)
                    if request.code == RequestCode.HELLO:
                        writer.write(b"".join(encode_response(3, request.opaque, 0, remark="", serialize_type=JSON)))
                    else:
                        writer.write(self.garbage)
        except ConnectionResetError:
            pass
        finally:
            writer.close()
            with suppress(ConnectionResetError):
                await writer.wait_closed()

    async def stop(self) -> None:
        """Close, and wait for the end of every connection."""
        self.server.close()
        await asyncio.gather(*self.serving)


@pytest.mark.parametrize("garbage", [b"", (1 << 20).to_bytes(4, "big") + b"\0\0\0\x10" + bytes(40)])
def test_a_channel_leaves_a_server_that_answers_nothing_whole(run: Run, log: MemoryLog, garbage: bytes) -> None:
    """Without an answer, and with a length that swallows all answers: both end, and what waits fails at once."""

    async def scenario() -> None:
        address = await (server := Server(garbage)).start()
        config = ChannelConfig(silent_timeouts_max=2, silent_ms_min=50, expire_interval_ms=5)
        channel = ClientChannel(address, clock=SystemClock(), log=log, config=config)
        await channel.open()
        await channel.hello()
        long = asyncio.ensure_future(channel.request(RequestCode.HEART_BEAT, None, timeout_ms=60_000))
        failures: list[PocketMQError] = []
        while not channel.closed:
            try:
                await channel.request(RequestCode.HEART_BEAT, None, timeout_ms=30)
            except PocketMQError as error:
                failures.append(error)
        assert sum(isinstance(error, RequestTimeout) for error in failures) >= 2
        with pytest.raises(ConnectionLost, match="requests without an answer"):
            await long
        await channel.wait_closed()
        assert log.count("server_silent") == 1
        await server.stop()

    run(scenario)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no TCP_USER_TIMEOUT")
def test_the_kernel_watches_the_peer(run: Run, log: MemoryLog) -> None:
    """A peer whose machine is gone is noticed without any request."""

    async def scenario() -> None:
        address = await (server := Server()).start()
        channel = ClientChannel(address, clock=SystemClock(), log=log)
        await channel.open()
        assert channel._transport is not None
        own = channel._transport.get_extra_info("socket")
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == USER_TIMEOUT_MS
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        channel.close()
        await channel.wait_closed()
        await server.stop()

    run(scenario)
