"""``pocketmq topic locate``: where the messages of a key go, and why they do not move on.

Lives here: options, output; the groups of one queue with offset, lag and lock.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli import options
from pocketmq.cli.admin.lock_columns import LOCK, lock_columns
from pocketmq.cli.output import print_json, print_note, print_rows
from pocketmq.cli.run import run_admin

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin
    from pocketmq.client.connection.rebalance import MessageQueue


def locate(
    topic: options.TopicArgument,
    key: Annotated[str, typer.Option("--key", "-k", metavar="KEY", help="Sharding key of the messages.")],
    group: options.OnlyGroup = "",
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Show the queue and broker of a sharding key, and for each group its lag there and the holder of the queue's lock.

    The queue is that of the present route; messages sent while a broker was away may lie elsewhere.
    """

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.admin import NotFound
        from pocketmq.client.producer.selectors import select_by_hash

        found = await admin.describe_topic(topic)
        writable = found.route.write_queues
        if not writable:
            raise NotFound(f"no queue of {topic} takes messages", hint=f"pocketmq topic describe {topic}")
        queue = select_by_hash(key, writable)
        address = found.route.brokers[queue.broker_name].readable()
        status = next((each for each in found.queues if each.queue == queue), None)
        rows = await _groups_of(admin, queue, group)
        place: dict[str, Any] = {
            "topic": topic,
            "key": key,
            "broker": queue.broker_name,
            "address": address,
            "queue_id": queue.queue_id,
            "max_offset": None if status is None else status.max_offset,
        }
        if as_json:
            print_json({**place, "groups": rows})
            return
        # the same columns for each group, so that one line answers the question
        shown = rows or [dict.fromkeys(GROUP_COLUMNS)]
        columns = ("broker", "address", "queue_id", "max_offset", *GROUP_COLUMNS)
        cells = [{**place, **row} for row in shown]
        print_rows(
            columns, [tuple("-" if row[name] is None else row[name] for name in columns) for row in cells], False
        )
        if not rows:
            print_note(f"no group{f' {group}' if group else ''} has consumed {queue}")

    run_admin(namesrv, body)


GROUP_COLUMNS = ("group", "consumer_offset", "lag", *LOCK)


async def _groups_of(admin: "Admin", queue: "MessageQueue", only: str) -> list[dict[str, Any]]:
    """Return a row for each group that consumes the queue, or that has locked it."""
    from pocketmq.client.admin.group_admin import groups_of_topic
    from pocketmq.client.admin.lock_admin import known_locks

    address = (await admin.masters(broker=queue.broker_name))[queue.broker_name]
    rows: list[dict[str, Any]] = []
    for name in [only] if only else await groups_of_topic(admin, queue.topic, [address]):
        found = await admin.describe_group(name, topic=queue.topic)
        progress = next((each for each in found.queues if each.queue == queue), None)
        lock = (await known_locks(admin, group=name, topic=queue.topic)).get(queue)
        if progress is not None:
            cells = (name, progress.consumer_offset, progress.lag, *lock_columns(lock))
            rows.append(dict(zip(GROUP_COLUMNS, cells, strict=True)))
    return rows
