"""Messages: by id, by key, from a time on; one message with its properties, its body and its trace.

Lives here: ``routes``.
"""

import asyncio
import re
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pocketmq.client.admin.query import Asked, Found, MessageFinder
from pocketmq.client.admin.trace_path import TracePath, find_path
from pocketmq.client.errors import NoRoute
from pocketmq.common.errors import MessageIllegal, PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.topics import check_topic_name
from pocketmq.dashboard.pages.desk import Entry, NotAllowed, desk_of
from pocketmq.dashboard.show.bodies import UNPACKED_BYTES_MAX, shown_body
from pocketmq.dashboard.show.words import parse_moment
from pocketmq.dashboard.watch.reading import newest

ROWS: Final = 64
TOPICS_MAX: Final = 200
"""Topics that are searched for a unique id when none is named."""
QUEUES_MAX: Final = 256
_OFFSET_ID: Final = re.compile(r"[0-9A-Fa-f]{32}(?:[0-9A-Fa-f]{24})?")


async def _messages(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    search = {name: entry.query(name) for name in ("topic", "id", "key", "time")}
    found = Found()
    problem = ""
    searched = bool(search["id"] or (search["topic"] and "key" in request.query_params))
    if searched:
        try:
            await entry.watch.start()
            found = await _search(entry, search)
        except PocketMQError as error:
            problem = str(error)
    return desk.page(
        entry,
        "messages.html",
        title="Messages",
        search=search,
        searched=searched,
        problem=problem,
        found=found,
        rows=[(message, desk.line(message)) for message in found.messages],
        failed=[each for each in found.asked if each.failed],
    )


async def _search(entry: Entry, search: dict[str, str]) -> Found:
    if search["id"]:
        return await find_by_id(entry, search["id"], search["topic"])
    check_topic_name(search["topic"])
    if search["key"]:
        at_ms = _time(search["time"])
        finder = MessageFinder(entry.watch.admin)
        return await finder.by_key(search["topic"], search["key"], begin_ms=at_ms, max_messages=ROWS)
    return await _by_time(entry, search["topic"], _time(search["time"]))


def _time(text: str) -> int:
    try:
        return parse_moment(text) if text else 0
    except ValueError as error:
        raise MessageIllegal("not searched", why=str(error), hint="a time in UTC: 2026-11-23T07:00") from error


async def find_by_id(entry: Entry, message_id: str, topic: str) -> Found:
    """Return the messages with an offset message id or a unique id; without a topic in all topics of users."""
    finder = MessageFinder(entry.watch.admin)
    found = Found()
    if _OFFSET_ID.fullmatch(message_id):
        try:
            found = await finder.by_offset_id(message_id)
        except MessageIllegal:  # 32 digits that are a unique id
            found = Found()
    if not found.messages:
        topics = [topic] if topic else [each.name for each in entry.state.topics.values() if each.kind == "user"]
        by_unique_id = await finder.by_unique_id(message_id, topics[:TOPICS_MAX])
        found.messages += by_unique_id.messages
        found.asked += by_unique_id.asked
    return found


async def _by_time(entry: Entry, topic: str, at_ms: int) -> Found:
    """Return the first messages that were stored at ``at_ms`` or later; without a time the newest."""
    description = await entry.watch.admin.describe_topic(topic)
    queues = [each for each in description.queues if each.count][:QUEUES_MAX]
    asked = [Asked("", "", f"{len(queues)} queues of {topic}", 0, "")]
    if not at_ms:
        ranges = [(each.queue, each.min_offset, each.max_offset) for each in queues]
        return Found(await newest(entry.reader, ranges, ROWS), asked)
    starts = await asyncio.gather(*(entry.reader.offset_by_time(each.queue, at_ms) for each in queues))
    parts = await asyncio.gather(
        *(
            entry.reader.messages(each.queue, start, ROWS)
            for each, start in zip(queues, starts, strict=True)
            if start < each.max_offset
        )
    )
    messages = [message for part in parts for message in part if message.store_timestamp >= at_ms]
    messages.sort(key=lambda each: (each.store_timestamp, each.broker_name, each.physical_offset))
    return Found(messages[:ROWS], asked)


async def _message(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    message = await _only(entry)
    trace, why = await _trace(entry, message)
    return desk.page(
        entry,
        "message.html",
        title="Message",
        message=message,
        body=shown_body(message, hide=desk.options.hide_bodies),
        trace=trace,
        no_trace=why,
    )


async def _only(entry: Entry) -> ReceivedMessage:
    """Return the message that the request names. Raises ``MessageIllegal``."""
    await entry.watch.start()
    found = await find_by_id(entry, entry.query("id"), entry.query("topic"))
    if not found.messages:
        looked = "; ".join(f"{each.broker_name or 'cluster'}: {each.remark or each.what}" for each in found.asked[:5])
        raise MessageIllegal(
            "no such message", why=looked or "there is no topic to search", hint="it may be older than the retention"
        )
    return found.messages[0]


async def _trace(entry: Entry, message: ReceivedMessage) -> tuple[TracePath | None, str]:
    if not message.msg_id:
        return None, "the message has no unique id"
    try:
        return await find_path(MessageFinder(entry.watch.admin), message.msg_id, topic=message.topic), ""
    except NoRoute:
        return None, "no client has traced any message: the trace topic is not there"
    except PocketMQError as error:
        return None, str(error)


async def _body(request: Request) -> Response:
    """Send a body as a file: whatever it is, no browser shows or runs it."""
    desk = desk_of(request)
    entry = await desk.enter(request)
    if desk.options.hide_bodies:
        raise NotAllowed("not sent", why="this dashboard hides bodies")
    message = await _only(entry)
    headers = {"Content-Disposition": 'attachment; filename="message-body.bin"'}
    return Response(message.body_within(UNPACKED_BYTES_MAX), headers=headers, media_type="application/octet-stream")


routes: Final = [
    Route("/messages", _messages),
    Route("/message", _message),
    Route("/message/body", _body),
]
