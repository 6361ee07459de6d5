"""Is this an offset that the queue can have been consumed up to?

Lives here: ``check_commit`` and its refusal. RocketMQ accepts any number, and the group then waits for messages that
may never come, or skips those that will.
"""

from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.store.message_store import MessageStore


class OffsetIllegal(PocketMQError):
    """An offset outside the queue was to be committed."""

    default_cause = Cause.BAD_REQUEST


def check_commit(store: MessageStore, topic: str, queue_id: int, offset: int) -> None:
    """Raise ``OffsetIllegal`` for an offset below 0 or behind the end of the queue.

    One below the queue's first message is fine: retention may have overtaken a slow consumer.
    """
    if offset < 0:
        raise OffsetIllegal("offset refused", why=f"{offset} is negative", hint="commit the next offset to consume")
    end = max(0, store.max_offset(topic, queue_id))
    if offset > end:  # who has a receipt may be ahead of the dispatch
        store.show_all()
        end = max(0, store.max_offset(topic, queue_id))
    if offset > end:
        raise OffsetIllegal(
            "offset refused",
            why=f"{offset} is outside of queue {queue_id} of {topic[:128]}, which ends at {end}",
            hint="commit the next offset to consume; to skip what is there, commit the end",
        )
