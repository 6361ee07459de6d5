"""Commands that follow a topic wait until it exists.

Lives here: ``wait_for_topic``.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from pocketmq.cli.output import print_progress

if TYPE_CHECKING:
    from pocketmq.client import PullConsumer

RETRY_S: Final = 0.2


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
