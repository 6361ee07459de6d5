"""The queues that ``--queue`` and ``--broker`` choose.

Lives here: ``choose_queues``.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketmq.client.connection.rebalance import MessageQueue


def choose_queues(
    queues: "Iterable[MessageQueue]", topic: str, queue_ids: Sequence[int], broker: str
) -> "list[MessageQueue]":
    """Return the queues of a topic with these ids (none given: all) on this broker ("": all); raise ``NotFound``."""
    from pocketmq.client.admin.admin import NotFound

    chosen = [
        queue
        for queue in queues
        if (not queue_ids or queue.queue_id in queue_ids) and broker in ("", queue.broker_name)
    ]
    missing = set(queue_ids) - {queue.queue_id for queue in chosen}
    if missing or not chosen:
        raise NotFound(
            f"no such queue of {topic}",
            why=f"id {min(missing)}" if missing else f"none on {broker}",
            hint=f"pocketmq topic describe {topic}",
        )
    return chosen
