"""The present work of a group's members: ``pocketmq group describe --running``.

Lives here: the request to each member through a broker, and the printed rows.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pocketmq.cli.output import print_note, print_table
from pocketmq.common.errors import PocketMQError

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin
    from pocketmq.remoting.protocol.relay import ConsumerRunningInfo

MEMBERS_MAX = 200
LOCK_WAITS = "waits_for_lock"
"""Prefix of a queue that waits for its lock, in the user information of a PocketMQ member."""

COLUMNS = ("client", "topic", "broker", "queue_id", "in_hand", "mib", "committed", "locked", "handled/s", "failed/s")


async def ask_members(
    admin: "Admin", group: str, client_ids: Sequence[str]
) -> dict[str, "ConsumerRunningInfo | PocketMQError"]:
    """Return the answer of each member, or its error; at most 200 are asked."""

    async def ask(client_id: str) -> "ConsumerRunningInfo | PocketMQError":
        try:
            return await admin.consumer_running_info(group, client_id)
        except PocketMQError as error:
            return error

    chosen = sorted(set(client_ids))[:MEMBERS_MAX]
    return dict(zip(chosen, await asyncio.gather(*map(ask, chosen)), strict=True))


def rows_of(client_id: str, info: "ConsumerRunningInfo") -> list[tuple[object, ...]]:
    """Return one row for each queue that the member reads."""
    rows: list[tuple[object, ...]] = []
    for queue, state in sorted(info.mq_table.items()):
        status = info.status_table.get(queue.topic)
        rows.append(
            (
                client_id,
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                state.cached_msg_count,
                state.cached_msg_size_in_mi_b,
                state.commit_offset,
                "yes" if state.locked else "",
                round(status.consume_ok_tps, 1) if status is not None else None,
                round(status.consume_failed_tps, 1) if status is not None else None,
            )
        )
    return rows


def print_running(answers: "dict[str, ConsumerRunningInfo | PocketMQError]") -> None:
    """Print a table, and on standard error members without an answer, paused ones, and the longest handler calls."""
    rows: list[tuple[object, ...]] = []
    for client_id, info in answers.items():
        if isinstance(info, PocketMQError):
            print_note(f"{client_id} did not answer: {info}")
            continue
        rows += rows_of(client_id, info)
        if info.properties.get("paused") == "true":
            print_note(f"{client_id} is paused")
        for name, text in info.user_consumer_info.items():
            print_note(f"{client_id} {'waits for a lock:' if name.startswith(LOCK_WAITS) else 'runs'} {text}")
    print_table(COLUMNS, rows, title="running")


def running_json(answers: "dict[str, ConsumerRunningInfo | PocketMQError]") -> list[dict[str, object]]:
    """Return the same as JSON data."""
    result: list[dict[str, object]] = []
    for client_id, info in answers.items():
        if isinstance(info, PocketMQError):
            result.append({"client_id": client_id, "error": str(info)})
            continue
        queues = [dict(zip(COLUMNS[1:], row[1:], strict=True)) for row in rows_of(client_id, info)]
        said = info.user_consumer_info.items()
        calls = [text for name, text in said if not name.startswith(LOCK_WAITS)]
        waits = [text for name, text in said if name.startswith(LOCK_WAITS)]
        paused = info.properties.get("paused") == "true"
        result.append({"client_id": client_id, "paused": paused, "queues": queues, "calls": calls, "lock_waits": waits})
    return result
