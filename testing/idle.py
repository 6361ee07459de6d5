"""When a group has nothing left to do.

Lives here: ``until_idle``, ``NotIdle``.

A message never is nowhere: a consumer counts one as done after its copy for the retry is in the log, and the broker
one as delivered after it is in its queue. So a group is idle if all its queues are read while nothing is appended.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from pocketmq.broker.app import BrokerApp
from pocketmq.client.admin.admin import Admin, NotFound
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.common.errors import PocketMQError
from pocketmq.common.topics import retry_topic

POLL_S: Final = 0.01


class NotIdle(PocketMQError):
    """A group still had something to do at the end of the wait; ``why`` says what."""


async def until_idle(
    broker: BrokerApp,
    namesrv: str,
    group: str,
    topics: Iterable[str],
    *,
    timeout_s: float,
    skip: Callable[[int], None] | None,
) -> None:
    """Return when the group has consumed all that is there, of the topics that it subscribes to and of ``topics``.

    ``skip(delay_ms)``: moves the time; then what waits for a delay, a retry for instance, counts as well, and the time
    is moved to it whenever nothing else is left. Raises ``NotIdle`` after ``timeout_s``, of real time.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_s
    async with Admin(namesrv) as admin:
        while True:
            end = broker.store.committed_offset  # before the next line: it shows all that was appended up to here
            await asyncio.to_thread(broker.store.show_all)
            waiting_ms = _next_delay_ms(broker)
            busy = "delayed messages are due" if waiting_ms == 0 else await _busy(broker, admin, group, topics)
            if not busy and broker.store.committed_offset == end:
                if skip is None or waiting_ms is None:
                    return
                skip(waiting_ms)
            if loop.time() > until_s:
                why = busy or "messages come and go"
                raise NotIdle(f"group {group} is not idle after {timeout_s:g} s", why=why)
            await asyncio.sleep(POLL_S)


def _next_delay_ms(broker: BrokerApp) -> int | None:
    """Return the ms until the next delayed message is due, 0 if that is not known yet, None if none waits."""
    delays = broker.delays
    assert delays is not None, "a test broker is a master"
    if not delays.pending_levels() and not delays.timers_unread() and not delays.timers.pending:
        return None
    return delays.next_due_in_ms()


async def _busy(broker: BrokerApp, admin: Admin, group: str, topics: Iterable[str]) -> str:
    """Return what the group has to do, "" for nothing."""
    try:
        found = await admin.describe_group(group)
    except NotFound:
        return f"no consumer of {group} is connected, nor has one committed an offset"
    if not found.members and not found.queues:
        return f"no consumer of {group} is connected, nor has one committed an offset"
    progress = {each.queue: each.consumer_offset for each in found.queues}
    wanted = {*topics, *found.subscriptions, *(queue.topic for queue in progress), retry_topic(group)}
    for member in found.members:
        try:
            running = await admin.consumer_running_info(group, member.client_id)
        except PocketMQError:  # a pull consumer answers nothing: its commits count
            continue
        wanted.update(each.topic for each in running.subscription_set)  # also of topics that it does not find yet
        for queue, info in running.mq_table.items():
            key = MessageQueue(queue.topic, queue.broker_name, queue.queue_id)
            progress[key] = max(progress.get(key, 0), info.commit_offset)
    return _unread(broker, progress, wanted)


def _unread(broker: BrokerApp, progress: dict[MessageQueue, int], topics: set[str]) -> str:
    """Return the first queue that holds messages beyond the group's progress, "" if none does."""
    for topic in sorted(topics):
        config = broker.topics.get(topic)
        for queue_id in range(0 if config is None else config.read_queue_nums):
            end = broker.store.max_offset(topic, queue_id)
            at = progress.get(MessageQueue(topic, broker.config.broker_name, queue_id), 0)
            if end > max(at, broker.store.min_offset(topic, queue_id)):
                return f"{end - at:,} messages of {topic} queue {queue_id} are not consumed"
    return ""
