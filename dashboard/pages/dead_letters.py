"""Dead letters: which groups gave messages up, why, sending them again, and their export.

Lives here: ``routes``, ``fragments``.
"""

import base64
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from pocketmq.client.admin.dead_letters import TO_ORIGIN, TO_RETRY, DeadLetters, last_error, origin_topic
from pocketmq.client.admin.query import MessageFinder
from pocketmq.common.errors import MessageIllegal, PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.topics import DLQ_PREFIX, check_group_name, dlq_topic
from pocketmq.dashboard.pages.desk import Desk, Entry, Fragment, desk_of
from pocketmq.dashboard.pages.table import Wanted, part_of
from pocketmq.dashboard.show.bodies import UNPACKED_BYTES_MAX
from pocketmq.dashboard.show.words import counted
from pocketmq.dashboard.watch.reading import ClusterReader, newest

ROWS: Final = 64
EXPORTED_MAX: Final = 100_000
"""Messages of one export, the oldest first; the command line exports more (``pocketmq dlq export``)."""
EXPORT_PART: Final = 64


async def _list(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    wanted = Wanted.of(request.query_params)
    return desk.live_page(entry, "dead-letters", "dead_letters.html", title="Dead letters", wanted=wanted)


def _list_fragment(desk: Desk, entry: Entry, query: Mapping[str, str]) -> str:
    wanted = Wanted.of(query)
    rows = [each for each in entry.state.topics.values() if each.kind == "dead letters"]
    orders = {
        "messages": lambda each: -each.count,
        "name": lambda each: each.name,
        "newest": lambda each: -each.newest_ms,
    }
    part = part_of(rows, wanted, lambda each: each.name.removeprefix(DLQ_PREFIX), orders)
    entry.watch.focus_topics(each.name for each in part.rows)
    return desk.text("_dead_letters.html", part=part, wanted=wanted, base="/dead-letters", prefix=DLQ_PREFIX)


async def _group(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    group = request.path_params["group"]
    check_group_name(group)
    await entry.watch.start()

    async def ask() -> tuple[int, list[ReceivedMessage]]:
        topic = await entry.watch.admin.describe_topic(dlq_topic(group))
        queues = [(each.queue, each.min_offset, each.max_offset) for each in topic.queues]
        return topic.count, await newest(entry.reader, queues, ROWS)

    count, messages = await desk.answers.get((entry.visit.credentials, "dead letters", group), ask)
    rows = [(each, origin_topic(each), last_error(each), desk.line(each)) for each in messages]
    return desk.page(
        entry, "dead_letter_group.html", title=f"Dead letters of {group}", group=group, count=count, rows=rows
    )


async def _resend(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    fields = await desk.form(entry)
    group, to = request.path_params["group"], fields.get("to", "")
    check_group_name(group)
    ids = [value for name, value in fields.items() if name.startswith("id-")]
    if to not in (TO_RETRY, TO_ORIGIN) or not ids:
        raise MessageIllegal("nothing was sent", why="choose messages, and where they go")
    admin = await entry.watch.start()
    letters, finder = DeadLetters(admin), MessageFinder(admin)
    sent = earlier = 0
    failed: list[str] = []
    for offset_id in ids:
        try:
            message = await _letter(finder, offset_id, group)
            if fields.get("again") != "yes" and (await letters.resends(message, group, [to])).count:
                earlier += 1
                continue
            await letters.resend(message, group, to)
            sent += 1
        except PocketMQError as error:
            failed.append(f"{offset_id}: {error}")
    target = "the group alone" if to == TO_RETRY else "the topics they came from"
    what = f"sent {counted(sent, 'dead letter')} of {group} again, to {target}"
    what += f"; {earlier} were left out: they had been sent there before" if earlier else ""
    what += f"; {len(failed)} failed, the first: {failed[0]}" if failed else ""
    return desk.done(entry, what, f"/dead-letters/{quote(group, safe='')}")


async def _letter(finder: MessageFinder, offset_id: str, group: str) -> ReceivedMessage:
    """Return a dead letter of this group. Raises ``MessageIllegal``."""
    found = (await finder.by_offset_id(offset_id)).messages
    if not found or found[0].topic != dlq_topic(group):
        raise MessageIllegal("not sent", why=f"{offset_id} is no dead letter of {group}", hint="load the page again")
    return found[0]


async def _export(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    group = request.path_params["group"]
    check_group_name(group)
    admin = await entry.watch.start()
    topic = await admin.describe_topic(dlq_topic(group))
    queues = [(each.queue, each.min_offset, each.max_offset) for each in topic.queues if each.count]
    headers = {"Content-Disposition": 'attachment; filename="dead-letters.jsonl"'}
    lines = _lines(entry.reader, queues, hide=desk.options.hide_bodies)
    return StreamingResponse(lines, headers=headers, media_type="application/x-ndjson")


async def _lines(reader: ClusterReader, queues: list[Any], *, hide: bool) -> AsyncGenerator[bytes, None]:
    """Yield a line of JSON for each dead letter; a slow reader slows down the reading."""
    count = 0
    for queue, begin, end in queues:
        offset = begin
        while offset < end and count < EXPORTED_MAX:
            messages = await reader.messages(queue, offset, min(EXPORT_PART, end - offset, EXPORTED_MAX - count))
            if not messages:
                break
            count += len(messages)
            offset = messages[-1].queue_offset + 1
            yield b"".join(_line(message, hide=hide) for message in messages)


def _line(message: ReceivedMessage, *, hide: bool) -> bytes:
    row: dict[str, Any] = {
        "group": message.topic.removeprefix(DLQ_PREFIX),
        "broker": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "msg_id": message.msg_id,
        "offset_msg_id": message.offset_msg_id,
        "origin_topic": origin_topic(message),
        "origin_message_id": message.origin_message_id,
        "attempts": message.reconsume_times,
        "last_error": last_error(message),
        "born_ms": message.born_timestamp,
        "store_ms": message.store_timestamp,
        "keys": message.keys,
        "tags": message.tags,
        "properties": message.properties,
    }
    if not hide:
        try:
            body = message.body_within(UNPACKED_BYTES_MAX)
        except PocketMQError as error:
            row["body_error"], body = str(error), message.raw_body
        try:
            row["body"] = body.decode()
        except UnicodeDecodeError:
            row["body_base64"] = base64.b64encode(body).decode()
    return msgspec.json.encode(row) + b"\n"


routes: Final = [
    Route("/dead-letters", _list),
    Route("/dead-letters/{group}", _group),
    Route("/dead-letters/{group}/export", _export),
    Route("/dead-letters/{group}/resend", _resend, methods=["POST"]),
]
fragments: Final[dict[str, Fragment]] = {"dead-letters": _list_fragment}
