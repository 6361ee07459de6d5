"""The short path of small sends: from the read buffer to the log and back in as few calls as Python allows.

Most programs send one message at a time. On the wide way such a frame becomes a request, a task, a drain, a plan, a
group of columns and an answer, made for thousands of records. Here the loop checks the bytes where the socket put them,
and the send thread appends and answers:

1. ``take`` (loop): the head of the frame by one ``struct``; what follows the opaque is the same for all frames with the
   same group, wait, timeout, topics, queues and counts, so one look-up gives a ``Route`` with everything decided.
2. A route is good while the gate's and the topics' generation equal its own: one number in place of the questions for
   role, hold, fence, disk, permission.
3. Each record: one ``struct`` for its header, one look-up for all bytes behind its body (``PlainChecker.ends``), its
   CRC.
4. A ``Task`` goes into the send pair's queue, with the checked records as its context. So order, limits in count and
   bytes, fast failure and shutdown are those of every send, and a short send never overtakes a wide one.
5. ``serve`` (send thread): all such tasks at the head of a drain become one append (``ShortAppend``), and the thread
   writes their answers itself (``DirectWriter``): waking the loop would cost more than the append.
6. Statistics are sums, folded in by ``settle`` every 50 ms, with the columns for the key index.

Only plainly good frames pass. Whatever is not, at any step, is left in the buffer or in the drain for the wide way,
which alone decides and words refusals; the request of a task is complete, so it can go either way.

Where flush or slaves are waited for, the append is the short one and the acknowledgement the usual one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.executor import SETTLE_AFTER_MS, DrainExecutor
from pocketmq.broker.request.request_task import AnswerPort, Buffers, Refusal, Task
from pocketmq.broker.send.native_append import NativeSend
from pocketmq.broker.send.run_to_completion import RunToCompletion
from pocketmq.broker.send.send_checks import SendChecks
from pocketmq.broker.send.send_processor import SendProcessor
from pocketmq.broker.send.send_times import PutTiming, SendTimes, stages_of
from pocketmq.broker.send.short_answer import answer_of
from pocketmq.broker.send.short_rocketmq import ShortRocketMQ
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.stats.stage_times import SEND_PAIR, RequestTiming
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import Clock
from pocketmq.common.hashes import crc32
from pocketmq.common.histogram import QUICK_NS, SampledHistogram
from pocketmq.common.plain_check import PlainChecker, PlainRules
from pocketmq.common.plain_rules import PlainFacts, PlainIllegal, topic_field
from pocketmq.common.record import CRC_MASK, MAGIC_V1, PLAIN_SYS_FLAGS
from pocketmq.common.record_group import UNIQ_KEY_BYTES, UNIQ_PREFIX
from pocketmq.remoting.codec import Request, decode_request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import HeaderIllegal, WrongDirection
from pocketmq.remoting.frame import MSGPACK, Frame
from pocketmq.remoting.short_frames import OPAQUE_MAX, REQUEST_HEAD, REQUEST_LEAD, SECTIONS_MAX
from pocketmq.store.append_result import AppendResult, PutStatus
from pocketmq.store.errors import PageCacheBusy
from pocketmq.store.message_store import MessageStore
from pocketmq.store.short_append import PATCHED_AT, ShortFrame, ShortRecord, ShortSection

FRAMES_MAX: Final = 64
"""Frames of one read that are served here; the rest is decoded, which ends the connection's turn if it is much."""
HEADER_BYTES_MAX: Final = 16_384
ROUTES_MAX: Final = 20_000
"""Routes remembered: enough for 10,000 topics; a full table starts again."""
ROUTES_BYTES_MAX: Final = 32 << 20
"""Memory that they may take, about: headers with many sections seldom repeat, and one of 200 sections takes 80 KB."""
QUEUES_MAX: Final = 50_000
"""Queues remembered, each with what its check found; about 400 bytes each."""
_ROUTE_BYTES: Final = 512
_SECTION_BYTES: Final = 448
TASK_BYTES: Final = 1024
"""As ``admission`` counts a queued request."""
_SAMPLE_NS: Final = 10_000_000
"""Between two measured reads; those between them count with the next."""
_SETTLE_NS: Final = int(SETTLE_AFTER_MS * 1_000_000)
_SIZES: Final = [Struct(f">{count}I") for count in range(SECTIONS_MAX + 1)]
_CODE: Final = int(RequestCode.NATIVE_APPEND)
_NOT_PLAIN: Final = ~PLAIN_SYS_FLAGS
_FIELD_TO_KEY: Final = 2 + len(UNIQ_PREFIX)
"""From the end of the topic to the unique key: the length of the properties, the name of the first one."""
_unpack_head = REQUEST_HEAD.unpack_from
_Check = tuple[ShortSection, int, int, int, bytes, int]
_Times = tuple[int, int, int]
"""When an append was asked for, when it had the append lock, and when it was done: monotonic ns."""
_NO_EXTRA: Final[dict[str, str]] = {}


@dataclass(slots=True, eq=False)
class Route:
    """Everything that the constant part of a request's header says, checked under two generations.

    ``checks``: for each section the first and last of its records, its queue, its topic's field, and the place of the
    unique key in a record's end.
    """

    generation: int
    topics_generation: int
    header: Any
    version: int
    language: int
    header_bytes: int
    count: int
    checks: list[_Check]


class ShortPath:
    """The short path of one broker. ``take`` belongs to the loop, ``serve`` and ``settle`` to a send thread."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        processor: SendProcessor,
        executor: DrainExecutor,
        checks: Sequence[SendChecks],
        topics: TopicTable,
        rules: PlainRules,
        scratch: memoryview,
        answers: AnswerPort,
        counters: BrokerCounters,
        clock: Clock,
        refused_by_role: Callable[[], Refusal | None],
        times: SendTimes | None,
        read_times: SampledHistogram | None,
    ) -> None:
        self._store = store
        self._processor = processor
        self._executor = executor
        self._offer = executor.offer
        self._checks = checks
        self._topics = topics
        self._view = scratch
        self._answers = answers
        self._counters = counters
        self._monotonic_ns = clock.monotonic_ns
        self._refused_by_role = refused_by_role
        self._times = times
        self._read_times = read_times
        self._gate = store.gate
        self._pool = store.pool
        self._lock = store.log.lock
        self._append = store.short.append
        self._checker = checker = PlainChecker(rules)
        self._ends = checker.ends
        self._unpack_record = checker.short_fields.unpack_from
        self._body_at = checker.body_at
        self._body_max = checker.body_max
        self._record_min = checker.body_at + 3
        self._host_bits = checker.host_bits
        self._is_v6 = store.log.is_v6
        self._routes: dict[bytes, Route] = {}
        self._routes_bytes = 0  # an estimate
        self._queues: dict[tuple[str, int], tuple[ShortSection, bytes, int]] = {}
        self._queues_under = (-1, -1)
        self._rocketmq = ShortRocketMQ(
            config,
            scratch,
            store.gate,
            topics,
            self._section_of,
            store.store_host,
            checker.body_max,
            self._is_v6,
            self._host_bits,
        )
        self._sample_ns = 0
        self._reads = 0
        self._acknowledges_later = True
        # sums since the last ``settle``
        self._messages = 0
        self._bytes = 0
        self._requests = 0
        self._answer_ns = 0
        self._quick = 0
        self._quick_wait_ns = 0
        self._quick_times: _Times = (0, 0, 0)
        self._settled_ns = 0
        self.unsettled = False
        """Whether ``settle`` has something to do."""
        self.served = 0
        """Requests appended here since the start."""
        self.here: RunToCompletion | None = None
        """Serves on the loop what can be served there; set where the store may allow it."""

    # ---- on the loop

    def take(self, connection: Connection, received_bytes: int) -> int:
        """Queue the small sends at the start of the read buffer, up to the first frame that is not one; return how many
        bytes they have."""
        view, routes, ends = self._view, self._routes, self._ends
        begin_ns = self._monotonic_ns()
        host, offer, record_min = connection.remote_host, self._offer, self._record_min
        at = frames = 0
        while received_bytes - at > REQUEST_HEAD.size and frames < FRAMES_MAX:
            length, word, lead, opaque = _unpack_head(view, at)
            end = at + 4 + length
            header_bytes = word & 0xFFFFFF
            body_at = at + 8 + header_bytes
            if (
                end > received_bytes
                or body_at > end
                or header_bytes > HEADER_BYTES_MAX
                or (self._lock.held_since_ns and self._lock.is_busy())
                or (self._pool is not None and self._pool.available == 0)
                or connection.is_v6 is not self._is_v6
            ):
                break
            if word >> 24 != MSGPACK:
                task = self._rocketmq.task(connection, word >> 24, at, body_at, end, begin_ns)
                if task is None or not offer(task):
                    break
                self._offer = self._executor.queue.offer
                at = end
                frames += 1
                continue
            if lead != REQUEST_LEAD or opaque > OPAQUE_MAX:
                break
            rest = bytes(view[at + REQUEST_HEAD.size : body_at])
            route = routes.get(rest)
            if (
                route is None
                or route.generation != self._gate.generation
                or route.topics_generation != self._topics.generation
            ):
                route = self._learn(rest, at, body_at)
                if route is None:
                    break
            count = route.count
            records_at = body_at + 4 * count
            if records_at > end:
                break
            sizes = _SIZES[count].unpack_from(view, body_at)
            here = records_at
            patched_from = records_at - PATCHED_AT
            parts: list[tuple[ShortSection, list[ShortRecord]]] = []
            for section, first, last, queue_id, field, key_at in route.checks:
                records: list[ShortRecord] = []
                parts += ((section, records),)
                for size in sizes[first:last]:
                    record_end = here + size
                    if size < record_min or record_end > end:
                        return at
                    total, magic, crc, queue, sys_flag, born_ms, reconsumed, prepared, body_bytes = self._unpack_record(
                        view, here
                    )
                    body_start = here + self._body_at
                    body_end = body_start + body_bytes
                    if (
                        total != size
                        or magic != MAGIC_V1
                        or queue != queue_id
                        or sys_flag & _NOT_PLAIN != self._host_bits
                        or reconsumed
                        or prepared
                        or not 0 <= body_bytes <= self._body_max
                        or body_end > record_end
                    ):
                        return at
                    tail = bytes(view[body_end:record_end])
                    uniq_key = tail[key_at : key_at + UNIQ_KEY_BYTES]
                    known = tail[:key_at] + tail[key_at + UNIQ_KEY_BYTES :]
                    code = ends.get(known)
                    if code is None:
                        code = self._judge(here, size, queue_id, field, uniq_key)
                        if code is None:
                            return at
                    # A known end may be that of another topic, cut at another place: its topic must be this one. The
                    # key must be 32 plain characters, else a separator in it could make other properties of the rest.
                    if (
                        known[: key_at - _FIELD_TO_KEY] != field
                        or not uniq_key.isalnum()
                        or crc32(view[body_start:body_end]) & CRC_MASK != crc
                    ):
                        return at
                    records += ((here - patched_from, size, sys_flag, born_ms, code, uniq_key),)
                    here = record_end
            if here != end:
                break
            body = bytearray(view[body_at:end])
            request = Request(
                _CODE, opaque, False, route.version, route.language, MSGPACK, route.header, body, _NO_EXTRA
            )
            request.received_ns = begin_ns
            frame = ShortFrame(parts, memoryview(body)[4 * count :], count, end - records_at, host, route.generation)
            turn = connection.direct_turn()
            task = Task(connection, request, begin_ns, end - body_at + TASK_BYTES, (frame, turn, None))
            if self.here is None or not self.here.serve(task, frame, turn):
                if not offer(task):
                    break  # full: admission refuses it, in its words
                self._offer = self._executor.queue.offer  # its threads run now: a call less
            at = end
            frames += 1
        self._reads += frames
        if begin_ns >= self._sample_ns and self._reads and self._read_times is not None:
            self._sample_ns = begin_ns + _SAMPLE_NS
            now_ns = self._monotonic_ns()
            self._read_times.sample_ns(now_ns, now_ns - begin_ns, self._reads)
            self._reads = 0
        return at

    def _learn(self, rest: bytes, at: int, body_at: int) -> Route | None:
        """Decode a header in the usual way and check everything that the gate stands for; None: not for this path."""
        generation, topics_generation = self._gate.generation, self._topics.generation  # before what they stand for
        try:
            request = decode_request(Frame(MSGPACK, bytes(self._view[at + 8 : body_at]), b""))
        except (HeaderIllegal, WrongDirection):
            return None
        header: Any = request.header
        if request.code != _CODE or request.oneway or request.extra or not 1 <= len(header.sections) <= SECTIONS_MAX:
            return None
        if (generation, topics_generation) != self._queues_under:  # sends to many topics combine the same queues anew
            self._queues_under = generation, topics_generation
            self._queues.clear()
        checks: list[_Check] = []
        total = 0
        for topic, queue_id, count in header.sections:
            known = self._queues.get((topic, queue_id)) or self._learn_queue(topic, queue_id)
            total += count
            if known is None or count < 1 or total > SECTIONS_MAX:
                return None
            section, field, key_at = known
            checks.append((section, total - count, total, queue_id, field, key_at))
        route = Route(
            generation,
            topics_generation,
            header,
            request.version,
            request.language,
            body_at - at - 8,
            total,
            checks,
        )
        if len(self._routes) >= ROUTES_MAX or self._routes_bytes >= ROUTES_BYTES_MAX:
            self._routes.clear()
            self._routes_bytes = 0
        if rest not in self._routes:
            self._routes_bytes += _ROUTE_BYTES + 2 * len(rest) + _SECTION_BYTES * len(checks)
        self._routes[rest] = route
        return route

    def _learn_queue(self, topic: str, queue_id: int) -> tuple[ShortSection, bytes, int] | None:
        """Return a queue open to sends, its topic's field and the place of the unique key; None for any other."""
        section = self._section_of(topic, queue_id)
        if section is None:
            return None
        field = topic_field(topic)
        if len(self._queues) >= QUEUES_MAX:
            self._queues.clear()
        known = self._queues[topic, queue_id] = section, field, len(field) + _FIELD_TO_KEY
        return known

    def _section_of(self, topic: str, queue_id: int) -> ShortSection | None:
        """Return a queue that may be sent to now, as far as the gate and the topics' generation say; else None.

        A queue without a message is none yet: the wide way makes it.
        """
        store = self._store
        if store.is_refusing() or self._refused_by_role() is not None or not 0 <= queue_id < self._queue_nums(topic):
            return None
        queue = store.consume_queues.get(topic, queue_id)
        self._acknowledges_later = store.acknowledges_later
        return None if queue is None else ShortSection(topic, queue_id, queue)

    def _queue_nums(self, topic: str) -> int:
        """Return the queues of a topic that has passed every check of a send and is on disk; 0 for any other."""
        config = self._topics.get(topic)
        for checks in self._checks:
            opened = checks.opened(topic)
            if opened is not None and opened[0] is config:
                return opened[1]
        return 0

    def _judge(self, here: int, size: int, queue_id: int, field: bytes, uniq_key: bytes) -> int | None:
        """Judge a record whose end is not known, in the usual way; return its tags code, None: it is not for this
        path. ``uniq_key``: the bytes where a record of our client has its unique key."""
        facts = PlainFacts()
        try:
            self._checker.check(self._view, here, size, queue_id, field, facts)
        except PlainIllegal:
            return None
        # The index needs KEYS, and unique keys of another length or at another place, by themselves: these records are
        # wide.
        return None if facts.keys[0] is not None or facts.uniq_keys[0] != uniq_key else facts.tags_codes[0]

    # ---- in a send thread

    def serve(self, tasks: list[Task]) -> list[Task]:
        """Append and answer the tasks at the head of a drain that came by ``take``; return the others, in order."""
        frames: list[ShortFrame] = []
        for task in tasks:
            if task.context is None:
                break
            frames += (task.context[0],)
        if not frames:
            return tasks
        started_ns = self._monotonic_ns()
        try:
            taken, entered_ns, appended_ns = self._append(frames, started_ns)
        except PageCacheBusy:
            return tasks
        if not taken:
            return tasks
        rest = tasks[taken:]
        if rest:
            tasks, frames = tasks[:taken], frames[:taken]
        if self._acknowledges_later or frames[0].generation != self._gate.generation:
            self._acknowledge(tasks, frames, (started_ns, entered_ns, appended_ns))
        else:
            self._answer(tasks)
        for frame in frames:
            self._messages += frame.count
            self._bytes += frame.size_bytes
        self.served += taken
        self._requests += taken
        self.unsettled = True
        oldest_ns = tasks[0].created_ns
        if appended_ns - oldest_ns >= QUICK_NS:
            self._count(tasks, (started_ns, entered_ns, appended_ns))
        else:
            self._quick += taken
            self._quick_wait_ns = started_ns - oldest_ns
            self._quick_times = (started_ns, entered_ns, appended_ns)
        if appended_ns - self._settled_ns > _SETTLE_NS:
            self._answer_ns = self._monotonic_ns() - appended_ns
            self.settle()
        return rest

    def _answer(self, tasks: list[Task]) -> None:
        """Write the answers of stored frames: here where the sockets allow it, else by the loop."""
        posted: list[tuple[Connection, Buffers]] = []
        connection: Connection = tasks[0].connection
        turn = tasks[0].context[1]
        data = b""
        for task in tasks:
            if task.connection is not connection:
                if turn < 0 or not connection.direct.write(data, turn):  # type: ignore[union-attr]
                    posted.append((connection, [data]))
                connection, turn, data = task.connection, task.context[1], b""
            frame, _, sent = task.context
            data += answer_of(task.request.opaque, frame) if sent is None else self._rocketmq.answer(task)
            task.settled = True
        if turn < 0 or not connection.direct.write(data, turn):  # type: ignore[union-attr]
            posted.append((connection, [data]))
        if posted:
            self._answers.post(posted)

    def _acknowledge(self, tasks: list[Task], frames: list[ShortFrame], times: _Times) -> None:
        """Answer when flush and slaves allow it, in the usual way; so too after something has closed the gate."""
        sends: list[Any] = []
        result = AppendResult(PutStatus.PUT_OK, store_timestamp=frames[0].store_timestamp)
        for task, frame in zip(tasks, frames, strict=True):
            first = len(result.runs)
            for (_, records), (queue_offset, position) in zip(frame.parts, frame.places, strict=True):
                result.first_queue_offsets.append(queue_offset)
                result.runs.append([(position, len(records))])
                result.end_offset = position + sum(record[1] for record in records)
            task.settled = True
            if task.context[2] is not None:
                sends.append(self._rocketmq.send_of(task, first))
                continue
            header: Any = task.request.header
            sizes = memoryview(task.request.body)[: 4 * frame.count]
            sends.append(
                NativeSend(
                    task,
                    header,
                    header.wait,
                    sizes,
                    frame.buffer,
                    frame.count,
                    frame.size_bytes,
                    frame.host,
                    False,
                    {},
                    {},
                    range(first, len(result.runs)),
                )
            )
        started_ns, _, appended_ns = times
        self._processor.acknowledge(sends, result, PutTiming(started_ns, started_ns, appended_ns, stages_of(times, 0)))

    # ---- statistics

    def _count(self, tasks: list[Task], put: _Times) -> None:
        """Count an append of which something took a millisecond; log it if it was slow."""
        times = self._times
        if times is None:
            return
        started_ns, _, appended_ns = put
        stages_ns = stages_of(put, self._monotonic_ns() - appended_ns)
        times.stages.drained(tasks, started_ns, stages_ns, appended_ns - started_ns)
        if not self._acknowledges_later:
            times.put_times.record(appended_ns - started_ns, len(tasks))
            timing: RequestTiming = (SEND_PAIR, tasks, tasks[0].created_ns, stages_ns, started_ns)
            self._answers.post([], timing)

    def settle(self) -> None:
        """Fold the sums into the broker's statistics, and give the collected rows to the key index. Blocks as an append
        does."""
        self.unsettled = False
        self._settled_ns = self._monotonic_ns()
        messages, self._messages = self._messages, 0
        size_bytes, self._bytes = self._bytes, 0
        quick, self._quick = self._quick, 0
        times = self._times
        if quick and times is not None:  # all as the last one: each of their stages took less than a millisecond
            started_ns, _, appended_ns = self._quick_times
            stages_ns = stages_of(self._quick_times, self._answer_ns)
            times.stages.add_quick(quick, self._quick_wait_ns, stages_ns)
            if not self._acknowledges_later:
                times.put_times.record(appended_ns - started_ns, quick)
        requests, self._requests = self._requests, 0
        self._executor.count_served(requests)
        self._counters.put(messages, size_bytes)  # last: a reader that sees the messages sees their times
        self._store.short.hand_on()
