"""Which queue takes a message: round robin, by sharding key, or the user's own function.

Lives here: the choices, as plain objects. Not here: where the queues come from (``route``), retries (``retry``).
"""

from collections.abc import Callable, Collection, Sequence

from pocketmq.client.errors import SelectorFailed
from pocketmq.client.rebalance import MessageQueue
from pocketmq.common.java_hash import java_string_hash
from pocketmq.common.message import Message

QueueSelector = Callable[[Sequence[MessageQueue], Message], "MessageQueue | int"]
"""A user's choice: (queues of the topic, message) -> one of them, or its index."""


class RoundRobin:
    """Takes turns over the queues of one topic, from a random start (TopicPublishInfo.java).

    ``index`` grows for ever; the queue is ``index`` modulo the number of queues at that moment.
    """

    __slots__ = ("index",)

    def __init__(self, start: int) -> None:
        self.index = start

    def next(self, queues: Sequence[MessageQueue], avoid_brokers: Collection[str] = ()) -> MessageQueue:
        """Return the next of ``queues`` (not empty); skip those of ``avoid_brokers`` unless there are no others."""
        count = len(queues)
        if avoid_brokers:
            for _ in range(count):
                self.index += 1
                queue = queues[self.index % count]
                if queue.broker_name not in avoid_brokers:
                    return queue
        self.index += 1
        return queues[self.index % count]


def select_by_hash(key: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """Return the queue of a sharding key: ``|hashCode % size|`` (SelectMessageQueueByHash.java).

    Java's remainder has the sign of the dividend, so the absolute value of the remainder is that of ``|hashCode| %
    size``.
    """
    return queues[abs(java_string_hash(key)) % len(queues)]


def select_by_user(selector: QueueSelector, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Ask the user's function; raise ``SelectorFailed`` if it raises or answers with no queue of this topic."""
    try:
        chosen = selector(queues, message)
    except Exception as error:
        raise SelectorFailed(
            "queue selector raised", why=f"{type(error).__name__}: {error}", hint="the message was not sent"
        ) from error
    if isinstance(chosen, int) and not isinstance(chosen, bool):
        if 0 <= chosen < len(queues):
            return queues[chosen]
    elif isinstance(chosen, tuple) and chosen in queues:
        return chosen
    raise SelectorFailed(
        "queue selector returned no queue",
        why=f"{chosen!r} for {len(queues)} queues of {message.topic}",
        hint="return one of the queues, or an index from 0 to len(queues) - 1",
    )
