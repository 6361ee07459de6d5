"""Short pulls: the bytes of their requests, and which answers they take."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.connection.instance import BrokerConnection
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.pull.short_pull import PullFrame, ShortPull
from pocketmq.common.errors import CorruptRecord
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.common.record_codec import PlainRecordBuilder
from pocketmq.remoting.codec import Response, decode_request
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import ConnectionLost
from pocketmq.remoting.frame import MSGPACK, PREFIX, PREFIX_BYTES, Frame
from pocketmq.remoting.protocol.pull import NativePullRequestHeader, NativePullResponseHeader

QUEUE = MessageQueue("T", "a", 3)
NAMES = st.text(st.characters(codec="utf-8"), max_size=40)


@given(
    NAMES,
    NAMES,
    NAMES,
    st.integers(0, 65_535),
    st.integers(0, 2**63 - 1),
    st.integers(1, 1 << 20),
    st.integers(1 << 16, 2**31 - 1),
)
def test_a_frame_is_the_request_that_the_codec_would_make(
    group: str, topic: str, expression: str, queue_id: int, offset: int, most: int, opaque: int
) -> None:
    frame = PullFrame(group, MessageQueue(topic, "a", queue_id), expression, "TAG", 1 << 20, 15_000)
    whole = frame.of(opaque, offset, most)
    length, word = PREFIX.unpack_from(whole)
    assert (length, word >> 24, word & 0xFFFFFF) == (len(whole) - 4, MSGPACK, len(whole) - PREFIX_BYTES)
    request = decode_request(Frame(MSGPACK, whole[PREFIX_BYTES:], b""))
    assert (request.code, request.opaque, request.oneway) == (RequestCode.NATIVE_PULL, opaque, False)
    assert request.header == NativePullRequestHeader(
        group, [(topic, queue_id, offset)], 1 << 20, most, 15_000, expression, "TAG"
    )


class Channel:
    """Keeps the requests that were written. ``room``: how many it takes."""

    def __init__(self) -> None:
        self.room = 100
        self.frames: list[bytes] = []
        self.entries: list[Any] = []

    def reserve(self) -> int | None:
        return 1 << 16 if len(self.frames) < self.room else None

    def write_request(self, opaque: int, entry: Any, frame: bytes) -> None:
        self.entries.append(entry)
        self.frames.append(frame)


class Run:
    """A run of short pulls from offset 10; ``more``: whether the consumer takes more."""

    def __init__(self) -> None:
        channel: Any = Channel()
        self.channel = channel
        self.offset = 10
        self.more = True
        self.taken: list[list[bytes]] = []
        connection = BrokerConnection("a", "h:1", channel, None)
        frame = PullFrame("g", QUEUE, "*", "TAG", 1 << 20, 15_000)
        self.pull = ShortPull(connection, frame, lambda: 7, 23_000, self.following, self.take)
        self.task = asyncio.ensure_future(self.pull.run())

    def following(self) -> tuple[int, int] | None:
        return (self.offset, 32) if self.more else None

    def take(self, messages: list[ReceivedMessage], next_offset: int, started_ns: int) -> None:
        assert started_ns == 7
        self.taken.append([message.body for message in messages])
        self.offset = next_offset

    async def asked(self, count: int) -> None:
        """Wait for so many requests."""
        while len(self.channel.frames) < count and not self.task.done():  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def answer(self, result: Any) -> None:
        """Answer the last request, and let the loop turn."""
        self.channel.entries[-1].done(result)
        for _ in range(3):
            await asyncio.sleep(0)

    @property
    def offsets(self) -> list[int]:
        """The offsets that were asked for."""
        headers: list[Any] = [
            decode_request(Frame(MSGPACK, frame[PREFIX_BYTES:], b"")).header for frame in self.channel.frames
        ]
        return [header.queues[0][2] for header in headers]


def record_of(body: bytes) -> bytes:
    return PlainRecordBuilder("c").build(Message("T", body), 3, b"0" * 32, 1)


def answer_of(*bodies: bytes, following: int = 11, code: int = 0, suggested: int = 0, count: int = -1) -> Response:
    records = [record_of(body) for body in bodies]
    data = b"".join(len(record).to_bytes(4, "big") for record in records) + b"".join(records)
    results = [(code, following, 0, following, len(bodies) if count < 0 else count)]
    return response(NativePullResponseHeader(results, suggested), data)


def response(header: Any, body: bytes = b"", code: int = 0) -> Response:
    return Response(code, 1 << 16, "", header, body, MSGPACK, {}, 0)


NOTHING = int(ResponseCode.PULL_NOT_FOUND)


async def test_each_answer_is_handed_over_and_the_next_pull_leaves() -> None:
    """With one message, several, and none; the next offset never goes back."""
    run = Run()
    await run.asked(1)
    await run.answer(answer_of(b"one"))
    await run.answer(answer_of(b"two", b"three", following=13))
    await run.answer(answer_of(following=13, code=NOTHING))
    await run.answer(answer_of(b"four", following=5))
    assert run.taken == [[b"one"], [b"two", b"three"], [], [b"four"]]
    assert run.offsets == [10, 11, 13, 13, 13]
    run.more = False
    await run.answer(answer_of(b"five", following=14))
    await run.task
    assert run.taken[-1] == [b"five"]


@pytest.mark.parametrize(
    "answer",
    [
        answer_of(b"x", suggested=1),
        answer_of(following=5, code=int(ResponseCode.PULL_OFFSET_MOVED)),
        answer_of(following=5, code=int(ResponseCode.PULL_RETRY_IMMEDIATELY)),
        answer_of(b"x", code=NOTHING),
        answer_of(b"x", count=2),
        answer_of(b"x", b"y", count=1),
        answer_of(b"x", count=0),
        answer_of(b"x", b"y", count=2**31 - 1),
        response(NativePullResponseHeader([(0, 1, 0, 1, 1)], 0), b"\0\0\0\1"),
        response(NativePullResponseHeader([], 0)),
        response(None),
        response(None, code=int(ResponseCode.SYSTEM_BUSY)),
    ],
)
async def test_any_other_answer_ends_the_run(answer: Response) -> None:
    """Nothing of it is taken: the usual way pulls the same offset again."""
    run = Run()
    await run.asked(1)
    await run.answer(answer)
    await run.task
    assert (run.taken, len(run.channel.frames)) == ([], 1)


async def test_errors_end_the_run_as_errors() -> None:
    """Of the connection, and of a damaged record."""
    lost = Run()
    await lost.asked(1)
    await lost.answer(ConnectionLost("closed"))
    with pytest.raises(ConnectionLost):
        await lost.task
    rotten = Run()
    await rotten.asked(1)
    answer = answer_of(b"x")
    await rotten.answer(response(answer.header, bytes(answer.body[:40]) + b"\xff" * (len(answer.body) - 40)))
    with pytest.raises(CorruptRecord):
        await rotten.task
    assert (lost.taken, rotten.taken) == ([], [])


async def test_an_answer_after_the_end_does_not_count() -> None:
    """The pull was stopped: its messages belong to the next holder of the queue."""
    run = Run()
    await run.asked(1)
    run.task.cancel()
    await asyncio.wait([run.task])
    await run.answer(answer_of(b"late"))
    assert (run.taken, len(run.channel.frames)) == ([], 1)


async def test_a_full_connection_or_consumer_ends_the_run() -> None:
    """Before anything is written."""
    full = Run()
    full.channel.room = 0
    await full.task
    waits = Run()
    waits.more = False
    await waits.task
    assert full.channel.frames == waits.channel.frames == []
