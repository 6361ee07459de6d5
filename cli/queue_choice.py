"""The topic that a command reads: waited for, and the queues that ``--queue`` and ``--broker`` choose.

Lives here: ``wait_for_topic``, ``choose_queues``.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from pocketmq.cli.output import print_progress

if TYPE_CHECKING:
    from pocketmq.client import PullConsumer
    from pocketmq.client.connection.rebalance import MessageQueue


RETRY_S: Final = 0.2
"""Between two looks for a topic that does not exist yet."""


async def wait_for_topic(consumer: "PullConsumer", topic: str) -> bool:
    """Return when the topic exists, and whether it had to be waited for; says so on standard error."""
    from pocketmq.client import NoRoute

    waited = False
    while True:
        try:
            await consumer.queues(topic)
        except NoRoute as error:
            if not waited:
                print_progress(f"waiting for topic {topic}: {error.why or error.what}")
            waited = True
            await asyncio.sleep(RETRY_S)
        else:
            return waited


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
