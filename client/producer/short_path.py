"""The short path of plain messages: from ``Producer.send`` to a frame, and from its answer to the receipts.

    add        a plain message joins its topic's sends of this turn of the loop; its future is returned
    flush      the end of the turn: each topic takes its next queue, each broker gets one frame
    _send      the frame: record headers, CRCs, one join; one entry in the channel's table; one write
    stored     ``ShortAppend``: the answer, read in place by ``remoting.short_answers`` or decoded, becomes receipts
    usual      every other end becomes sections, and ``SectionSender`` goes on as if it had sent them

Only what always succeeds happens here. What a message, a topic, a broker or a stage needs beyond that takes the usual
way (``Submission``), which does everything and words every refusal; so does whatever fails on the way. Both ways share
ids, turns over the queues, limits in flight and the retry budget. In one turn of the loop a topic's plain messages take
one way: ``add`` takes none while a section of theirs is open in the accumulator, or while sends to their topic are
parked. And what was begun first leaves first. So a queue gets its messages in the same order as without this path.

A turn is one frame for each broker, whatever its number of records. Only ``Overlap`` may cut it in two, while nothing
is in flight; then both parts take the same queue.
"""

import asyncio
import struct
from typing import Any, Final

from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.overlap import RECORDS_MIN as OVERLAP_RECORDS_MIN
from pocketmq.client.producer.overlap import Overlap
from pocketmq.client.producer.short_append import ONE, ShortAppend
from pocketmq.client.producer.short_targets import (
    COUNTS,
    RECORDS_MAX,
    ShortLine,
    ShortSend,
    ShortTarget,
    ShortTargets,
    ShortTopic,
    array_head,
)
from pocketmq.client.producer.submission import IDS_AT_ONCE, Submission
from pocketmq.client.sender.attempt_plan import AttemptPlan
from pocketmq.client.sender.section import FRAME_BYTES_TARGET
from pocketmq.client.sender.sender import SectionSender
from pocketmq.common.errors import PocketMQError
from pocketmq.common.hashes import crc32
from pocketmq.common.message import Message
from pocketmq.common.record import CRC_MASK, MAGIC_V1
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import MSGPACK
from pocketmq.remoting.short_frames import REQUEST_HEAD, REQUEST_LEAD, SECTIONS_MAX

_NATIVE_APPEND: Final = int(RequestCode.NATIVE_APPEND)
_WORD: Final = MSGPACK << 24
_pack_head = REQUEST_HEAD.pack
_SIZES: Final = [struct.Struct(f">{count}I") for count in range(SECTIONS_MAX + 1)]


class ShortPath:
    """The short path of one producer. Belongs to its event loop; ``targets`` knows where messages can go."""

    def __init__(
        self,
        submission: Submission,
        sender: SectionSender,
        plan: AttemptPlan,
        targets: ShortTargets,
        body_bytes_max: int,
    ) -> None:
        self.in_flight = submission.in_flight
        self.budget_stored = plan.budget.stored
        self.faults = plan.faults
        self._plan = plan
        self._submission = submission
        self._sender = sender
        self._targets = targets
        self._topics = targets.topics
        self._open = submission.open
        self._wide_frames = submission.accumulator.frames
        self._parked = submission.parking.waiting
        self._ids = submission.ids
        self._body_bytes_max = min(body_bytes_max, FRAME_BYTES_TARGET)
        self.attempts_max = 1 + submission.options.retry_times_when_send_failed
        self.timeout_ns = submission.options.send_msg_timeout_ms * 1_000_000
        self._instance = submission.instance
        clock = submission.instance.clock
        self._now_ms, self._monotonic_ns = clock.now_ms, clock.monotonic_ns
        self._overlap = Overlap()
        self._turn: list[ShortTopic]  # topics with sends of this turn
        self._cut: list[ShortTopic]  # topics of which the first part has left
        self._cut_count: int  # messages of that part
        self._count: int
        self._size_bytes: int
        self._scheduled: bool
        self._behind: bool  # whether frames of the usual way were open before the first message of this turn
        self._loop: asyncio.AbstractEventLoop
        self._create_future: Any
        self._forget_turn()

    def begin(self) -> None:
        """Belong to the running loop."""
        self._forget_turn()
        self._loop = asyncio.get_running_loop()
        self._create_future = self._loop.create_future

    def _forget_turn(self) -> None:
        self._turn, self._cut = [], []
        self._count = self._size_bytes = self._cut_count = 0
        self._scheduled = self._behind = False

    def answered(self, broker: str, sent_ns: int) -> None:
        """Let the fault items see how long a broker took."""
        self._plan.answered(broker, sent_ns, self._monotonic_ns())

    # -- in ----------------------------------------------------------------------------------------------------

    def add(self, message: Message) -> "asyncio.Future[Receipt] | None":
        """Take a plain message and return the future of its receipt; None: the usual way has to take it."""
        if type(message) is not Message:
            return None
        body = message.body
        if (
            type(body) is not bytes
            or message.keys != ()
            or message.properties
            or message.sharding_key
            or message.delay_time_level
            or message.delay_time_ms is not None
            or message.deliver_time_ms is not None
            or message.flag
            or message.packed is not None
            or message.wait_store_msg_ok is not True
            or type(message.tags) is not str
            or type(message.topic) is not str
            or message.topic in self._parked
            or message.topic in self._open
            or self.in_flight.full
            or not self._submission.running
        ):
            return None
        size_bytes = len(body)
        if not 0 < size_bytes <= self._body_bytes_max:
            return None
        try:
            # One call finds another loop, a plain thread, and the child of a fork: there no loop runs, or another one.
            if asyncio.get_running_loop() is not self._loop:
                return None
        except RuntimeError:
            return None
        topic = self._topics.get(message.topic) or self._targets.topic(message.topic)
        if topic is None:
            return None
        try:
            template = topic.templates[message.tags]
        except KeyError:
            made = self._targets.template(topic, message)
            if made is None:
                return None
            template = made
        if not topic.sends:
            if not topic.cut:
                topic.target = self._targets.next(topic)
            if topic.target is None:
                return None
            self._turn.append(topic)
        future: asyncio.Future[Receipt] = self._create_future()
        topic.sends.append((message, future, template, body, size_bytes))
        self._count += 1
        self._size_bytes += size_bytes + template[2]
        if not self._scheduled:
            self._scheduled = True
            self._behind = bool(self._wide_frames)
            self._loop.call_soon(self._end_of_turn)
        if self._size_bytes >= FRAME_BYTES_TARGET or self._count >= RECORDS_MAX:
            if self._behind:
                self._submission.flush()
            self.flush()
        elif self._count >= self._overlap.cut_at and not self.in_flight.sends and not self._behind:
            self._cut_turn()
        return future

    def _end_of_turn(self) -> None:
        self._scheduled = False
        count = self._count + self._cut_count
        self.flush()
        if count >= OVERLAP_RECORDS_MIN:
            self._overlap.turn(count, self.in_flight.sends, self._monotonic_ns())
            self._cut_count = 0
            for topic in self._cut:
                topic.cut = False
            self._cut.clear()

    def _cut_turn(self) -> None:
        """Send the first part of the turn: the broker works while the rest is added."""
        self._cut, self._cut_count = self._turn, self._count
        for topic in self._cut:
            topic.cut = True
        self.flush()

    def before_cut(self) -> None:
        """Leave before a frame of the usual way that is full, unless that was there first."""
        if self._behind:
            self._behind = False
        else:
            self.flush()

    def before_open(self, name: str) -> None:
        """Let the messages of a topic join the section of the usual way that is about to be opened: in one turn, all
        messages of a topic without a key go to one queue."""
        topic = self._topics.get(name)
        if topic is None or not topic.sends:
            return
        sends, topic.sends = topic.sends, []
        self._turn.remove(topic)
        self._count -= len(sends)
        if not topic.cut:
            self._targets.give_back(topic)
        self._wide(sends)

    # -- out ---------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what was added in this turn."""
        topics = self._turn
        if not topics:
            return
        self._turn = []
        count, self._count, self._size_bytes = self._count, 0, 0
        lines: list[ShortLine] = []
        for topic in topics:
            sends, topic.sends = topic.sends, []
            target = topic.target
            assert target is not None
            line = target.line
            if count == 1:
                self._send(line, [(target, sends)], 1)
                return
            if not line.count:
                lines.append(line)
            line.pending.append((target, sends))
            line.count += len(sends)
        for line in lines:
            parts, line.pending = line.pending, []
            count, line.count = line.count, 0
            self._send(line, parts, count)

    def _send(self, line: ShortLine, parts: list[tuple[ShortTarget, list[ShortSend]]], count: int) -> None:
        """Send the messages of ``parts``, ``count`` in all, in one frame."""
        opaque = line.channel.reserve()
        if opaque is None:
            for _, sends in parts:
                self._wide(sends)
            return
        born_ms = self._now_ms()
        host_bits = line.builder.host_bits
        ids = self._ids
        counts: tuple[int, ...]
        if count == 1:
            target, sends = parts[0]
            _, _, (before, after, size), body, length = sends[0]
            size_bytes = size = size + length
            if not ids:
                ids += self._instance.ids.next_bytes(IDS_AT_ONCE)
            key = ids.pop()
            header_bytes = target.one_bytes
            pieces = [
                b"",
                target.one,
                line.pack_one(
                    size, size, MAGIC_V1, crc32(body) & CRC_MASK, target.queue_id, 0, host_bits, born_ms, length
                ),
                body,
                before,
                key,
                after,
            ]
            counts, keys, sizes = ONE, [key], [size]
        else:
            pieces = [b"", line.head, array_head(len(parts))]
            header_bytes = line.header_bytes + len(pieces[2])
            records: list[bytes] = []
            if len(ids) < count:
                ids += self._instance.ids.next_bytes(max(IDS_AT_ONCE, count))
            keys, sizes = ids[-count:], []
            del ids[-count:]
            pack = line.builder.pack_header
            at = 0
            for target, sends in parts:
                in_section = len(sends)
                number = COUNTS[in_section]
                header_bytes += target.section_bytes + len(number)
                pieces += (target.section, number)
                queue_id = target.queue_id
                for (_, _, (before, after, size), body, length), key in zip(
                    sends, keys[at : at + in_section], strict=True
                ):
                    size += length
                    sizes.append(size)
                    records += (
                        pack(size, MAGIC_V1, crc32(body) & CRC_MASK, queue_id, 0, host_bits, born_ms, length),
                        body,
                        before,
                        key,
                        after,
                    )
                at += in_section
            pack_sizes = _SIZES[count].pack if count <= SECTIONS_MAX else struct.Struct(f">{count}I").pack
            pieces += (line.tail, pack_sizes(*sizes))
            pieces += records
            counts = tuple([len(sends) for _, sends in parts])
            size_bytes = sum(sizes)
        pieces[0] = _pack_head(4 + header_bytes + 4 * count + size_bytes, _WORD | header_bytes, REQUEST_LEAD, opaque)
        self.in_flight.add(size_bytes, count, False)
        now_ns = self._monotonic_ns()
        entry = ShortAppend(
            _NATIVE_APPEND,
            now_ns,
            now_ns + line.timeout_ns,
            -1,  # it leaves at once: it must never count as not sent
            counts,
            self,
            line,
            parts,
            keys,
            sizes,
            size_bytes,
            born_ms,
        )
        line.channel.request_now(opaque, entry, b"".join(pieces))

    # -- the usual way -----------------------------------------------------------------------------------------

    def _wide(self, sends: list[ShortSend]) -> None:
        """Let messages that have not left take the usual way: topic, queue or connection are not as they were."""
        submission = self._submission
        for message, future, _, _, _ in sends:
            # Its caller waited for room already. Only where there is none any more it must be said, for submission
            # would refuse it; a start of its own costs a section of its own.
            started_ns = self._monotonic_ns() if self.in_flight.full else 0
            try:
                submission.submit(message, None, None, False, future, self.attempts_max, started_ns)
            except Exception as error:
                if not future.done():
                    future.set_exception(error)

    def usual(self, entry: ShortAppend, result: Response | PocketMQError) -> None:
        """Go on as if ``SectionSender`` had sent the frame: a refusal, another form of answer, a timeout, a loss."""
        self._sender.take_over(entry.line.connection, entry.sections(), entry.started_ns, result)

    # -- end ---------------------------------------------------------------------------------------------------

    def _unanswered(self) -> list[ShortAppend]:
        return [
            entry
            for line in self._targets.lines()
            for entry in line.channel.waiting()
            if isinstance(entry, ShortAppend) and entry.path is self and entry.line is line
        ]

    async def drain(self, timeout_s: float) -> None:
        """Send what waits for the turn's end; wait until every frame has its answer, at most ``timeout_s``."""
        self.flush()
        end_s = self._loop.time() + timeout_s
        while (unanswered := self._unanswered()) and self._loop.time() < end_s:
            waits = [part[1][-1][1] for entry in unanswered for part in entry.parts if not part[1][-1][1].done()]
            if waits:
                await asyncio.wait(waits, timeout=max(end_s - self._loop.time(), 0))
            else:  # their callers gave up
                await asyncio.sleep(0.001)

    def close(self) -> None:
        """Pass what has no answer on to ``SectionSender``, which ends it when it closes."""
        for entry in self._unanswered():
            entry.line.channel.withdraw(entry)
            self._sender.take_over(entry.line.connection, entry.sections(), entry.started_ns, None)
