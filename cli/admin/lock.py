"""``pocketmq lock list | release``: why an ordered queue stands still, and what to do when its holder is gone.

Lives here: options, output, the question before a release.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pocketmq.cli import complete, options
from pocketmq.cli.admin.lock_columns import seconds
from pocketmq.cli.connection import given
from pocketmq.cli.output import print_json, print_note, print_table
from pocketmq.cli.run import build_group, confirm, run_admin, run_async
from pocketmq.common.errors import Cause, PocketMQError

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin
    from pocketmq.client.admin.lock_admin import QueueLockStatus

COLUMNS = (
    "group",
    "topic",
    "broker",
    "queue_id",
    "holder",
    "address",
    "age",
    "renewed",
    "expires_in",
    "token",
    "waiting",
)


class NoSuchLock(PocketMQError):
    """There is no lock on that queue."""

    default_cause = Cause.BAD_REQUEST


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    help_text = "Queue locks of ordered consumption: which client holds which, since when."
    return build_group(help_text, list=list_locks, release=release)


def list_locks(
    group: options.OnlyGroup = "",
    topic: options.OnlyTopic = "",
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """List the locks: holder, age, time since the last renewal, time until expiry, fencing token, waiting clients.

    The next client that asks for an expired lock gets it.
    """

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.lock_admin import queue_locks

        locks, left_out = await queue_locks(admin, group=group, topic=topic)
        if as_json:
            print_json({"locks": [_as_json(lock) for lock in locks], "left_out": left_out})
            return
        print_table(COLUMNS, [_row(lock) for lock in locks])
        if left_out:
            print_note(f"{left_out:,} more are not shown: choose a group or a topic")
        waiting = [lock for lock in locks if lock.info.waiting]
        if waiting:
            print_note(f"{len(waiting)} queues stand still while clients wait for their locks")

    run_admin(namesrv, body)


def release(
    group: Annotated[str, typer.Option("--group", "-g", help="Consumer group.", autocompletion=complete.groups)],
    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic.", autocompletion=complete.topics)],
    queue_id: Annotated[int, typer.Option("--queue", metavar="ID", min=0, help="Queue id.")],
    broker: Annotated[
        str, typer.Option("--broker", "-b", metavar="NAME", help="Broker, if several have the topic.")
    ] = "",
    yes: options.Yes = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Take a queue's lock away from its holder, so that the waiting client gets it now.

    For a holder that will not return. One that is alive, but cut off, finishes the message in its hands; its commits
    are refused from then on.
    """

    from pocketmq.client.admin.admin import Admin
    from pocketmq.client.admin.lock_admin import queue_locks, release_lock

    found: list[QueueLockStatus] = []

    async def find() -> None:
        async with Admin(namesrv, **given()) as admin:
            locks, _ = await queue_locks(admin, group=group, topic=topic)
        found.extend(each for each in locks if each.queue.queue_id == queue_id)

    async def take_away() -> None:
        async with Admin(namesrv, **given()) as admin:
            await release_lock(admin, lock)

    run_async(find())
    brokers = {each.queue.broker_name: each for each in found if broker in ("", each.queue.broker_name)}
    if not brokers:
        raise NoSuchLock(
            "no such lock",
            why=f"no client of {group} holds queue {queue_id} of {topic}",
            hint="pocketmq lock list shows all locks",
        )
    if len(brokers) > 1:
        raise typer.BadParameter(f"several brokers have this lock: {', '.join(brokers)}", param_hint="--broker")
    [lock] = brokers.values()
    confirm(_question(lock), yes, else_what="the lock was not released")
    run_async(take_away())
    print(f"released: {lock.queue} of {group}, held by {lock.info.client_id} under token {lock.info.fencing_token}")


def _question(lock: "QueueLockStatus") -> str:
    info = lock.info
    return (
        f"{lock.queue} of {info.consumer_group} is held by {info.client_id} at {info.address} since "
        f"{seconds(info.age_ms)}, renewed {seconds(info.renewed_ms_ago)} ago, {_expiry(lock)}. Take it away?"
    )


def _expiry(lock: "QueueLockStatus") -> str:
    if lock.is_expired:
        return "expired"
    return f"expires in {seconds(lock.info.expires_in_ms)}"


def _row(lock: "QueueLockStatus") -> tuple[object, ...]:
    info = lock.info
    expires = "expired" if lock.is_expired else seconds(info.expires_in_ms)
    if info.release_in_ms >= 0:
        expires = f"{seconds(info.release_in_ms)} (disconnected)"
    waiting = ", ".join(f"{each.client_id} ({seconds(each.waiting_ms)})" for each in info.waiting)
    return (
        info.consumer_group,
        info.topic,
        lock.queue.broker_name,
        info.queue_id,
        info.client_id,
        info.address,
        seconds(info.age_ms),
        f"{seconds(info.renewed_ms_ago)} ago",
        expires,
        str(info.fencing_token),
        waiting,
    )


def _as_json(lock: "QueueLockStatus") -> dict[str, Any]:
    info = lock.info
    return {
        "group": info.consumer_group,
        "topic": info.topic,
        "broker": lock.queue.broker_name,
        "queue_id": info.queue_id,
        "holder": info.client_id,
        "address": info.address,
        "age_ms": info.age_ms,
        "renewed_ms_ago": info.renewed_ms_ago,
        "expires_in_ms": info.expires_in_ms,
        "release_in_ms": None if info.release_in_ms < 0 else info.release_in_ms,
        "fencing_token": info.fencing_token,
        "waiting": [
            {"client_id": each.client_id, "waiting_ms": each.waiting_ms, "refusals": each.refusals}
            for each in info.waiting
        ],
    }
