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

Where users are known, a route also remembers who may take it; the guard judges everybody else's frames on the wide way.
That is a connection that has proved its user, or sends of RocketMQ's clients each of which its user has signed.
A connection with a quota pays for each frame here, in one call.

Where flush or slaves are waited for, the append is the short one and the acknowledgement the usual one.

Lives here: ``ShortPath``, the loop's end (steps 1, 3 and 4). ``ShortRoutes`` learns routes; ``ShortDrain`` is the send
thread's end (5 and 6); ``ShortRocketMQ`` takes the sends of RocketMQ's clients in place of step 3; ``RunToCompletion``
appends on the loop where nothing can stall.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from pocketmq.auth.auth_table import AuthTable
from pocketmq.auth.session import Session
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.executor import DrainExecutor
from pocketmq.broker.request.request_task import AnswerPort, Refusal, Task
from pocketmq.broker.send.run_to_completion import RunToCompletion
from pocketmq.broker.send.send_checks import SendChecks
from pocketmq.broker.send.send_processor import SendProcessor
from pocketmq.broker.send.send_times import SendTimes
from pocketmq.broker.send.short_drain import ShortDrain
from pocketmq.broker.send.short_rocketmq import ShortRocketMQ
from pocketmq.broker.send.short_rocketmq_answers import RocketMQAnswers
from pocketmq.broker.send.short_routes import CODE, FIELD_TO_KEY, ShortRoutes, permits
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import Clock
from pocketmq.common.hashes import crc32
from pocketmq.common.histogram import SampledHistogram
from pocketmq.common.plain_check import PlainChecker, PlainRules
from pocketmq.common.plain_rules import PlainFacts, PlainIllegal
from pocketmq.common.record import CRC_MASK, MAGIC_V1, PLAIN_SYS_FLAGS
from pocketmq.common.record_group import UNIQ_KEY_BYTES
from pocketmq.remoting.codec import Request
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.frame import MSGPACK
from pocketmq.remoting.short_frames import OPAQUE_MAX, REQUEST_HEAD, REQUEST_LEAD, SECTIONS_MAX
from pocketmq.store.message_store import MessageStore
from pocketmq.store.short_append import PATCHED_AT, ShortFrame, ShortRecord, ShortSection

FRAMES_MAX: Final = 64
"""Frames of one read that are served here; the rest is decoded, which ends the connection's turn if it is much."""
HEADER_BYTES_MAX: Final = 16_384
ENDS_MAX: Final = 20_000
"""Ends of records remembered: a topic's differ from all others', and there may be 10,000 of them."""
END_BYTES_MAX: Final = 512
"""Longest end that is remembered; usual ones have about 100 bytes."""
TASK_BYTES: Final = 1024
"""As ``admission`` counts a queued request."""
_SAMPLE_NS: Final = 10_000_000
"""Between two measured reads; those between them count with the next."""
_SIZES: Final = [Struct(f">{count}I") for count in range(SECTIONS_MAX + 1)]
_NOT_PLAIN: Final = ~PLAIN_SYS_FLAGS
_unpack_head = REQUEST_HEAD.unpack_from
_NO_EXTRA: Final[dict[str, str]] = {}


class ShortPath:
    """The short path of one broker. ``take`` belongs to the loop, ``drain`` to a send thread."""

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
        auth: AuthTable | None = None,
    ) -> None:
        """``auth``: the users and policies, where the server has a guard."""
        self._auth = auth
        self._executor = executor
        self._offer = executor.offer
        self._topics = topics
        self._view = scratch
        self._monotonic_ns = clock.monotonic_ns
        self._read_times = read_times
        self._gate = store.gate
        self._pool = store.pool
        self._lock = store.log.lock
        self._checker = checker = PlainChecker(rules, count_max=ENDS_MAX, tail_bytes_max=END_BYTES_MAX)
        self._ends = checker.ends
        self._unpack_record = checker.short_fields.unpack_from
        self._body_at = checker.body_at
        self._body_max = checker.body_max
        self._record_min = checker.body_at + 3
        self._host_bits = checker.host_bits
        self._is_v6 = store.log.is_v6
        self.routes = ShortRoutes(store, checks, topics, refused_by_role)
        self._rocketmq = ShortRocketMQ(
            config, scratch, store.gate, topics, self.routes.section_of, checker, self._is_v6
        )
        rocketmq_answers = RocketMQAnswers(config, store.store_host)
        self.drain = ShortDrain(
            store, self.routes, rocketmq_answers, processor, executor, answers, counters, clock, times
        )
        """The send thread's end."""
        self._sample_ns = 0
        self._reads = 0
        self.here: RunToCompletion | None = None
        """Serves on the loop what can be served there; set where the store may allow it."""

    def take(self, connection: Connection, received_bytes: int) -> int:
        """Queue the small sends at the start of the read buffer, up to the first frame that is not one; return how many
        bytes they have."""
        view, routes, ends = self._view, self.routes.known, self._ends
        session: Session | None = None
        signer: Session | None = None
        if self._auth is not None:
            session = connection.session
            if session is None:
                signer = connection.speaker  # of the last signature that the guard has let in here
            known = session or signer
            if known is None or known.generation != self._auth.generation:
                return 0  # the guard knows who this is, or refuses it
        begin_ns = self._monotonic_ns()
        quota = connection.quota
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
                if session is not None:
                    break  # it may have a signature of its own
                task = self._rocketmq.task(connection, word >> 24, at, body_at, end, begin_ns, signer)
                if task is None or (quota is not None and quota.take(1, end - at, begin_ns) is not None):
                    break
                if not offer(task):
                    if quota is not None:
                        quota.owe(-1, at - end, begin_ns)  # the wide way takes it again
                    break
                self._offer = self._executor.queue.offer
                at = end
                frames += 1
                continue
            if lead != REQUEST_LEAD or opaque > OPAQUE_MAX or signer is not None:
                break  # a native send needs a proof
            rest = bytes(view[at + REQUEST_HEAD.size : body_at])
            route = routes.get(rest)
            if (
                route is None
                or route.generation != self._gate.generation
                or route.topics_generation != self._topics.generation
            ):
                route = self.routes.learn(rest, bytes(view[at + 8 : body_at]))
                if route is None:
                    break
            if (
                session is not None
                and session.checks
                and session not in route.permitted
                and not permits(route.permitted, [check[0].topic for check in route.checks], session)
            ):
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
                        known[: key_at - FIELD_TO_KEY] != field
                        or not uniq_key.isalnum()
                        or crc32(view[body_start:body_end]) & CRC_MASK != crc
                    ):
                        return at
                    records += ((here - patched_from, size, sys_flag, born_ms, code, uniq_key),)
                    here = record_end
            if here != end or (quota is not None and quota.take(count, end - at, begin_ns) is not None):
                break  # over a limit: the wide way refuses it
            body = bytearray(view[body_at:end])
            request = Request(
                CODE, opaque, False, route.version, route.language, MSGPACK, route.header, body, _NO_EXTRA
            )
            request.received_ns = begin_ns
            frame = ShortFrame(parts, memoryview(body)[4 * count :], count, end - records_at, host, route.generation)
            turn = connection.direct_turn()
            task = Task(connection, request, begin_ns, end - body_at + TASK_BYTES, (frame, turn, None))
            if self.here is None or not self.here.serve(task, frame, turn):
                if not offer(task):
                    if quota is not None:
                        quota.owe(-count, at - end, begin_ns)
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
