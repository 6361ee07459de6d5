"""The queue of an ordered message: by sharding key, or the user's own function; and of a reply.

Lives here: the choices, as plain functions. ``sender.queue_choice`` has the choice for all other messages.
"""

from collections.abc import Callable, Sequence

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import SelectorFailed
from pocketmq.common.hashes import java_string_hash
from pocketmq.common.message import Message

QueueSelector = Callable[[Sequence[MessageQueue], Message], "MessageQueue | int"]
"""A user's choice: (queues of the topic, message) -> one of them, or its index."""


def select_by_hash(key: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """Return the queue of a sharding key: ``|hashCode % size|`` (SelectMessageQueueByHash.java).

    Java's remainder has the sign of the dividend, so the absolute value of the remainder is that of ``|hashCode| %
    size``.
    """
    return queues[abs(java_string_hash(key)) % len(queues)]


def select_by_user(selector: QueueSelector, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Call the user's function; raise ``SelectorFailed`` if it raises or returns no queue of this topic."""
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


def select_for_reply(broker_name: str, queues: Sequence[MessageQueue]) -> MessageQueue | None:
    """Return a queue of the broker that had the request: the requester is connected there. None: any queue will do."""
    return next((queue for queue in queues if queue.broker_name == broker_name), None)
