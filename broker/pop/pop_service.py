"""Long polling of pops: each new message wakes as many as it can serve, first come, first served.

A held pop is kept as a held pull is (``pull.pull_service``), but by what it waits for: a topic, for one group. RocketMQ
wakes one for each message and goes on from there; here the number of messages that are ready is known.

Lives here: ``PopHolds``, the waiting pops with RocketMQ's limits; ``PopService``, the shell around them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from pocketmq.broker.pull.long_polling import Hold, PullHolds
from pocketmq.broker.pull.pull_service import PullService, Queues
from pocketmq.common.receipt_handle import pop_retry_topic, pop_retry_topic_v2
from pocketmq.remoting.frame import Buffer

ANY_QUEUE: Final = -1
_ORDERED: Final = "@ordered"


def waiting_key(group: str, topic: str, is_ordered: bool) -> str:
    """Return what a pop waits for, in the place of a topic. No name has an ``@``."""
    return f"{topic}@{group}{_ORDERED if is_ordered else ''}"


def split_key(key: str) -> tuple[str, str, bool]:
    """Return (group, topic, whether it is ordered) of a ``waiting_key``."""
    topic, _, group = key.removesuffix(_ORDERED).partition("@")
    return group, topic, key.endswith(_ORDERED)


@dataclass(slots=True, eq=False)
class PopHolds(PullHolds):
    """The table of waiting pops. A hold waits for one (``waiting_key``, queue id or -1)."""

    waiters_max: int
    """Pops that wait for the same (RocketMQ ``popPollingSize``)."""
    watched: dict[str, dict[str, set[int]]] = field(init=False, default_factory=dict)
    """Topic that messages arrive in → key → the queue ids that its pops wait for."""

    def hold(self, hold: Hold) -> bool:
        """Keep ``hold``; False when the table is full, or too many wait for the same."""
        key, queue_id, _ = hold.queues[0] if hold.queues else ("", 0, 0)
        if hold.queues and self.waiters(key, queue_id) >= self.waiters_max:
            return False
        if not PullHolds.hold(self, hold):
            return False
        if hold.queues:
            group, topic, is_ordered = split_key(key)
            for each in watched_topics(group, topic, is_ordered):
                self.watched.setdefault(each, {}).setdefault(key, set()).add(queue_id)
        return True

    def waiters(self, key: str, queue_id: int) -> int:
        """Return how many pops wait for the same."""
        return len(self._by_queue.get((key, queue_id), ()))

    def wake_some(self, key: str, queue_id: int, messages: int, wants: Callable[[Hold], int]) -> list[Hold]:
        """Remove and return the first holds that together want ``messages`` messages."""
        chosen: list[Hold] = []
        for hold in islice(self._by_queue.get((key, queue_id), ()), max(1, messages)):
            if messages <= 0:
                break
            chosen.append(hold)
            messages -= wants(hold)
        return self._remove(chosen)

    def _remove(self, holds: list[Hold]) -> list[Hold]:
        removed = PullHolds._remove(self, holds)
        for hold in holds:
            for key, queue_id, _ in hold.queues:
                if (key, queue_id) not in self._by_queue:
                    group, topic, is_ordered = split_key(key)
                    for each in watched_topics(group, topic, is_ordered):
                        self._unwatch(each, key, queue_id)
        return removed

    def _unwatch(self, topic: str, key: str, queue_id: int) -> None:
        keys = self.watched.get(topic, {})
        queue_ids = keys.get(key)
        if queue_ids is not None:
            queue_ids.discard(queue_id)
            if not queue_ids:
                del keys[key]
        if topic in self.watched and not keys:
            del self.watched[topic]


def watched_topics(group: str, topic: str, is_ordered: bool) -> tuple[str, ...]:
    """Return the topics whose new messages a pop waits for."""
    return (topic,) if is_ordered else (topic, pop_retry_topic(group, topic), pop_retry_topic_v2(group, topic))


def wants_of(hold: Hold) -> int:
    """Return how many messages a held pop wants at most."""
    header = hold.context[0].request.header
    return int(getattr(header, "max_messages", 0) or getattr(header, "max_msg_nums", 0) or 1)


@dataclass(slots=True, eq=False)
class PopService(PullService):
    """Owns the held pops, as ``PullService`` does the held pulls.

    ``max_offset`` is called with a ``waiting_key`` and a queue id, and returns 1 when a pop would find messages.
    """

    ready: Callable[[str, int, str, int], int] = lambda key, queue_id, topic, at: 0
    """How many messages of queue ``at`` of ``topic`` a pop with this key could get now. Memory only."""

    def news(self, queues: Queues, tags_code: int = 0, record: Buffer | None = None) -> None:
        """Wake the pops that wait for these queues, of which each has its end (topic, queue id, offset). Any thread."""
        if self.holds.count:
            self.mailbox.post(self._wake, queues)

    def freed(self, group: str, topic: str) -> None:
        """Wake a pop of the group, if there is something for it: room was made, a batch is done, or a pop that was
        woken has left something. Any thread."""
        if self.holds.count:
            self.mailbox.post(self._wake_one, group, topic)

    def _wake_one(self, group: str, topic: str) -> None:
        holds = self.holds
        assert isinstance(holds, PopHolds)
        for key, queue_ids in list(holds.watched.get(topic, {}).items()):
            if split_key(key)[0] == group:
                for queue_id in list(queue_ids):
                    if self.max_offset(key, queue_id):
                        for hold in holds.wake_some(key, queue_id, 1, wants_of):
                            self._run_again(hold, is_due=False)

    def _wake(self, queues: Queues, tags_code: int = 0, record: bytes = b"") -> None:
        holds = self.holds
        assert isinstance(holds, PopHolds)
        for topic, at, _ in queues:
            for key, queue_ids in list(holds.watched.get(topic, {}).items()):
                is_own = split_key(key)[1] == topic
                for queue_id in list(queue_ids):
                    if is_own and queue_id not in (ANY_QUEUE, at):
                        continue
                    messages = self.ready(key, queue_id, topic, at)
                    if messages > 0:
                        for hold in holds.wake_some(key, queue_id, messages, wants_of):
                            self._run_again(hold, is_due=False)
