"""What the constant part of a small send's header says, learned once and good while nothing changes.

Lives here: ``Route`` (a header's constant part, decoded and checked), ``ShortRoutes`` (all that are known, and the
queues behind them), ``permits`` (whether a user may take one).

Frames with the same group, wait, timeout, topics, queues and counts are equal behind the opaque: those bytes are the
key. A route is good while the gate's and the topics' generation equal its own: one number in place of the questions for
role, hold, fence, disk, permission. Both tables are bounded, in count and in bytes, for peers choose what they learn.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pocketmq.auth.needed import resource_of
from pocketmq.auth.session import Session
from pocketmq.broker.request.request_task import Refusal
from pocketmq.broker.send.send_checks import SendChecks
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.plain_rules import topic_field
from pocketmq.common.record_group import UNIQ_PREFIX
from pocketmq.remoting.codec import decode_request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import HeaderIllegal, WrongDirection
from pocketmq.remoting.frame import MSGPACK, Frame
from pocketmq.remoting.protocol.access import PUB, Resource
from pocketmq.remoting.short_frames import SECTIONS_MAX
from pocketmq.store.message_store import MessageStore
from pocketmq.store.short_append import ShortSection

ROUTES_MAX: Final = 20_000
"""Routes remembered: enough for 10,000 topics; a full table starts again."""
ROUTES_BYTES_MAX: Final = 32 << 20
"""Memory that they may take, about: headers with many sections seldom repeat, and one of 200 sections takes 80 KB."""
QUEUES_MAX: Final = 50_000
"""Queues remembered, each with what its check found; about 400 bytes each."""
PERMITTED_MAX: Final = 64
"""Users remembered with a route."""
CODE: Final = int(RequestCode.NATIVE_APPEND)
FIELD_TO_KEY: Final = 2 + len(UNIQ_PREFIX)
"""From the end of the topic to the unique key: the length of the properties, the name of the first one."""
_ROUTE_BYTES: Final = 512
_SECTION_BYTES: Final = 448
Check = tuple[ShortSection, int, int, int, bytes, int]


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
    checks: list[Check]
    permitted: set[Session] = field(default_factory=set)
    """The users, with their addresses, that may send to all of its topics, of those that were asked about."""


class ShortRoutes:
    """The routes and queues that small sends may take. Belongs to the loop."""

    def __init__(
        self,
        store: MessageStore,
        checks: Sequence[SendChecks],
        topics: TopicTable,
        refused_by_role: Callable[[], Refusal | None],
    ) -> None:
        """``checks``: what the wide way has found about topics, of each of its threads."""
        self._store = store
        self._gate = store.gate
        self._checks = checks
        self._topics = topics
        self._refused_by_role = refused_by_role
        self.known: dict[bytes, Route] = {}
        """Behind the opaque of a header → its route, perhaps an outdated one."""
        self._bytes = 0  # an estimate
        self._queues: dict[tuple[str, int], tuple[ShortSection, bytes, int]] = {}
        self._queues_under = (-1, -1)
        self.acknowledges_later = True
        """Whether answers wait for flush or slaves, as the last check found it; any thread may read it."""

    def learn(self, rest: bytes, header: bytes) -> Route | None:
        """Decode ``header``, which ends with ``rest``, in the usual way and check everything that the gate stands for;
        None: not for this path."""
        generation, topics_generation = self._gate.generation, self._topics.generation  # before what they stand for
        try:
            request = decode_request(Frame(MSGPACK, header, b""))
        except (HeaderIllegal, WrongDirection):
            return None
        decoded: Any = request.header
        if request.code != CODE or request.oneway or request.extra or not 1 <= len(decoded.sections) <= SECTIONS_MAX:
            return None
        if (generation, topics_generation) != self._queues_under:  # sends to many topics combine the same queues anew
            self._queues_under = generation, topics_generation
            self._queues.clear()
        checks: list[Check] = []
        total = 0
        for topic, queue_id, count in decoded.sections:
            known = self._queues.get((topic, queue_id)) or self._learn_queue(topic, queue_id)
            total += count
            if known is None or count < 1 or total > SECTIONS_MAX:
                return None
            section, field, key_at = known
            checks.append((section, total - count, total, queue_id, field, key_at))
        route = Route(
            generation,
            topics_generation,
            decoded,
            request.version,
            request.language,
            len(header),
            total,
            checks,
        )
        if len(self.known) >= ROUTES_MAX or self._bytes >= ROUTES_BYTES_MAX:
            self.known.clear()
            self._bytes = 0
        if rest not in self.known:
            self._bytes += _ROUTE_BYTES + 2 * len(rest) + _SECTION_BYTES * len(checks)
        self.known[rest] = route
        return route

    def _learn_queue(self, topic: str, queue_id: int) -> tuple[ShortSection, bytes, int] | None:
        """Return a queue open to sends, its topic's field and the place of the unique key; None for any other."""
        section = self.section_of(topic, queue_id)
        if section is None:
            return None
        field = topic_field(topic)
        if len(self._queues) >= QUEUES_MAX:
            self._queues.clear()
        known = self._queues[topic, queue_id] = section, field, len(field) + FIELD_TO_KEY
        return known

    def section_of(self, topic: str, queue_id: int) -> ShortSection | None:
        """Return a queue that may be sent to now, as far as the gate and the topics' generation say; else None.

        A queue without a message is none yet: the wide way makes it.
        """
        store = self._store
        if store.is_refusing() or self._refused_by_role() is not None or not 0 <= queue_id < self._queue_nums(topic):
            return None
        queue = store.consume_queues.get(topic, queue_id)
        self.acknowledges_later = store.acknowledges_later
        return None if queue is None else ShortSection(topic, queue_id, queue)

    def _queue_nums(self, topic: str) -> int:
        """Return the queues of a topic that has passed every check of a send and is on disk; 0 for any other."""
        config = self._topics.get(topic)
        for checks in self._checks:
            opened = checks.opened(topic)
            if opened is not None and opened[0] is config:
                return opened[1]
        return 0


def permits(permitted: set[Session], topics: Iterable[str], session: Session) -> bool:
    """Return whether a user may send to all topics of a route, and if so remember it in ``permitted``."""
    for topic in topics:
        if not session.may(*resource_of(Resource.TOPIC, topic, PUB)):
            return False
    if len(permitted) >= PERMITTED_MAX:
        permitted.clear()
    permitted.add(session)
    return True
