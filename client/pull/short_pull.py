"""The usual pulls of one queue: each answer is handed over and the next pull sent without a task in between.

Lives here: ``ShortPull`` (one run of such pulls on one connection) and ``PullFrame`` (the bytes of their requests).

    answer of the broker (loop: read, decode) -> done: records -> process queue -> handler's worker wakes
                                                          the next pull leaves, after the worker's first step

``QueuePull`` has the usual way, which knows pauses, limits, refusals, slaves and RocketMQ's brokers. It begins a run
whenever it may pull, and sleeps until the run ends: at anything that is not a plain answer of the master. Nothing is
lost then: a pull changes nothing at the broker, so the usual way pulls the same offset again and words what is wrong.
Only an error of the connection, and a record that is damaged, end the run as that error.
"""

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from pocketmq.client.connection.instance import BrokerConnection
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import MASTER_ID
from pocketmq.common.record_codec import received_message
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codec_msgpack import encode_msgpack
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frame import MSGPACK, PREFIX_BYTES
from pocketmq.remoting.protocol.pull import NativePullRequestHeader

if TYPE_CHECKING:
    from pocketmq.common.message import ReceivedMessage

Following = Callable[[], "tuple[int, int] | None"]
"""Returns offset and largest number of messages of the next pull; None ends the run."""
Taken = Callable[["list[ReceivedMessage]", int, int], object]
"""Gets the messages of an answer, the offset of the next pull, and when this one was sent (monotonic ns)."""

_OPAQUE: Final = 0x7FFF_FFFF
_OFFSET: Final = 2**63 - 1
_MESSAGES: Final = 0x7FFF_FFFE
"""Numbers that stand in the template where those of a request go; each has the widest form of msgpack."""
_CODE: Final = int(RequestCode.NATIVE_PULL)
_FOUND: Final = int(ResponseCode.SUCCESS)
_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)


class PullFrame:
    """The frame of a native pull of one queue, constant but for opaque, offset and number of messages."""

    __slots__ = ("_a", "_b", "_c", "_d", "_length", "_pack", "_word", "suspend_ms")

    def __init__(
        self, group: str, queue: MessageQueue, expression: str, expression_type: str, max_bytes: int, suspend_ms: int
    ) -> None:
        """``suspend_ms``: how long the broker may hold the pull."""
        self.suspend_ms = suspend_ms
        header = NativePullRequestHeader(
            consumer_group=group,
            queues=[(queue.topic, queue.queue_id, _OFFSET)],
            max_bytes=max_bytes,
            max_messages=_MESSAGES,
            suspend_timeout_millis=suspend_ms,
            expression=expression,
            expression_type=expression_type,
        )
        whole = bytes(encode_msgpack(_CODE, _OPAQUE, 0, "", header, None))[PREFIX_BYTES:]
        # Names and expressions are UTF-8, which has no byte of 0xF8 and above: the marks occur once each.
        self._a, rest = _split(whole, b"\xce" + _OPAQUE.to_bytes(4, "big"), 4)
        self._b, rest = _split(rest, b"\xcf" + _OFFSET.to_bytes(8, "big"), 8)
        self._c, self._d = _split(rest, b"\xce" + _MESSAGES.to_bytes(4, "big"), 4)
        form = f">II{len(self._a)}sI{len(self._b)}sQ{len(self._c)}sI{len(self._d)}s"
        self._length = 4 + len(whole)
        self._word = MSGPACK << 24 | len(whole)
        self._pack = Struct(form).pack

    def of(self, opaque: int, offset: int, max_messages: int) -> bytes:
        """Return the whole frame of one request."""
        return self._pack(self._length, self._word, self._a, opaque, self._b, offset, self._c, max_messages, self._d)


def _split(data: bytes, mark: bytes, number_bytes: int) -> tuple[bytes, bytes]:
    """Return what comes before the number of ``mark``, its type byte included, and what follows it."""
    at = data.index(mark) + len(mark)
    return data[: at - number_bytes], data[at:]


class ShortPull:
    """Pulls of one queue from its master, one after the other (``remoting.pending.Waiting``)."""

    __slots__ = (
        "_clock_ns",
        "_connection",
        "_ended",
        "_frame",
        "_loop",
        "_next",
        "_several",
        "_take",
        "_timeout_ns",
        "counts",
        "deadline_ns",
        "offset",
        "request_code",
        "started_ns",
        "turn",
    )

    def __init__(
        self,
        connection: BrokerConnection,
        frame: PullFrame,
        clock_ns: Callable[[], int],
        timeout_ms: int,
        following: Following,
        take: Taken,
    ) -> None:
        from pocketmq.common.record_columns import received_messages  # NumPy: not at import

        self.request_code = _CODE
        self.started_ns = self.deadline_ns = self.offset = 0
        self.turn = -1
        self.counts: tuple[int, ...] = ()
        self._connection = connection
        self._frame = frame
        self._clock_ns = clock_ns
        self._timeout_ns = timeout_ms * 1_000_000
        self._next = following
        self._take = take
        self._several = received_messages
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()

    async def run(self) -> None:
        """Pull until the usual way has to. Raises the error of the connection, or of a damaged record."""
        try:
            self._ask()
            await self._ended
        finally:
            if not self._ended.done():  # cancelled: an answer that comes later must not count
                self._ended.cancel()

    def _ask(self) -> None:
        if self._ended.done():
            return
        try:
            following = self._next()
            channel = self._connection.channel
            opaque = None if following is None else channel.reserve()
            if opaque is None or following is None:
                self._ended.set_result(None)
                return
            self.offset = following[0]
            self.started_ns = now_ns = self._clock_ns()
            self.deadline_ns = now_ns + self._timeout_ns
            channel.write_request(opaque, self, self._frame.of(opaque, *following))
        except Exception as error:
            self._fail(error)

    def done(self, result: Any) -> None:
        """Take an answer, or the error of the connection."""
        if self._ended.done():
            return
        try:
            if not isinstance(result, Response):
                raise result
            if not self._taken(result):
                self._ended.set_result(None)
                return
        except Exception as error:
            self._fail(error)
            return
        self._loop.call_soon(self._ask)  # behind the worker that has just been woken

    def _taken(self, answer: Response) -> bool:
        """Hand over a plain answer; False: it is another one."""
        header: Any = answer.header
        if answer.code != _FOUND or header is None or header.suggest_which_broker_id != MASTER_ID:
            return False
        if len(header.results) != 1:
            return False
        code, next_offset, _, _, count = header.results[0]
        next_offset = max(next_offset, self.offset)
        body = answer.body
        if code == _FOUND and count == 1 and len(body) > 4:
            if int.from_bytes(body[:4], "big") != len(body) - 4:
                return False
            messages = [received_message(bytes(body[4:]), self._connection.broker_name)]
        elif code == _FOUND and count > 1:
            sizes = self._sizes(body, count)
            if sizes is None:
                return False
            messages = self._several(memoryview(body)[4 * count :], sizes, self._connection.broker_name)
        elif code == _NOT_FOUND and count == 0 and not body:
            messages = []
        else:
            return False
        self._take(messages, next_offset, self.started_ns)
        return True

    @staticmethod
    def _sizes(body: Any, count: int) -> Any:
        """Return the sizes of the records in an answer; None if they do not add up."""
        import numpy as np

        if 4 * count > len(body):
            return None
        sizes = np.frombuffer(memoryview(body)[: 4 * count], ">u4").astype(np.int64)
        return sizes if int(sizes.sum()) == len(body) - 4 * count else None

    def _fail(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    def stored(self, places: Any, /) -> None:
        """Never called: ``counts`` is empty."""
        raise AssertionError(places)
