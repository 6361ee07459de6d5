"""Topics: the list, one topic with its queues and groups, the live tail, and publishing one message.

Lives here: ``routes``, ``fragments``.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from functools import partial
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pocketmq.client.admin.group_admin import groups_of_topic
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.producer import Producer
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.message import Message
from pocketmq.common.topics import is_send_forbidden
from pocketmq.dashboard.live.event_stream import EventStream, event
from pocketmq.dashboard.pages.desk import Desk, Entry, Fragment, desk_of
from pocketmq.dashboard.pages.table import Wanted, part_of
from pocketmq.dashboard.watch.cluster_watch import ClusterWatch
from pocketmq.dashboard.watch.state import GroupTopic, is_system_group

PRODUCER_GROUP: Final = "pocketmq-dashboard"
KINDS: Final = ("user", "retry", "dead letters", "system")
FILTER_MAX: Final = 1_000
ALIVE_S: Final = 15.0
"""A line is sent after so long without an event, so that a proxy keeps the connection."""


async def _topics(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    return desk.live_page(entry, "topics", "topics.html", title="Topics", wanted=Wanted.of(request.query_params))


def _topics_fragment(desk: Desk, entry: Entry, query: Mapping[str, str]) -> str:
    wanted = Wanted.of(query)
    kind = wanted.kind or "user"
    rows = [each for each in entry.state.topics.values() if kind == "all" or each.kind == kind]
    orders = {
        "rate": lambda each: -each.rate,
        "name": lambda each: each.name,
        "messages": lambda each: -each.count,
        "queues": lambda each: -len(each.ends),
        "newest": lambda each: -each.newest_ms,
    }
    part = part_of(rows, wanted, lambda each: each.name, orders)
    entry.watch.focus_topics(each.name for each in part.rows)
    return desk.text(
        "_topics.html", state=entry.state, part=part, wanted=wanted, kinds=(*KINDS, "all"), kind=kind, base="/topics"
    )


async def _topic(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    name = request.path_params["topic"]
    await entry.watch.start()

    async def ask() -> tuple[object, list[str]]:
        description = await entry.watch.admin.describe_topic(name)
        addresses = [broker.readable() for broker in description.route.brokers.values() if broker.readable()]
        return description, await groups_of_topic(entry.watch.admin, name, addresses)

    description, groups = await desk.answers.get((entry.visit.credentials, "topic", name), ask)
    entry.watch.focus_topics([name])
    return desk.page(
        entry,
        "topic.html",
        title=f"Topic {name}",
        topic=description,
        readers=_readers(entry, name, groups),
        known=entry.state.topics.get(name),
        may_send=not is_send_forbidden(name),
        tags=entry.query("tags", FILTER_MAX),
        sql=entry.query("sql", FILTER_MAX),
        tail="tags" in request.query_params or "sql" in request.query_params,
    )


def _readers(entry: Entry, topic: str, groups: Iterable[str]) -> list[tuple[str, GroupTopic | None]]:
    """Return the groups that read a topic with their progress in it, the furthest behind first; no tools."""
    found = []
    for name in groups:
        if not is_system_group(name):
            group = entry.state.groups.get(name)
            found.append((name, None if group is None else group.topics.get(topic)))
    return sorted(found, key=lambda each: (-each[1].lag if each[1] else 0, each[0]))


async def _tail(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    key = (
        entry.visit.credentials,
        request.path_params["topic"],
        entry.query("tags", FILTER_MAX),
        entry.query("sql", FILTER_MAX),
    )
    tail, viewer = desk.tails.join(key)

    async def events() -> AsyncGenerator[bytes, None]:
        number = 0
        yield event("open", "")
        while True:
            try:
                await asyncio.wait_for(viewer.wake.wait(), ALIVE_S)
            except TimeoutError:
                yield b": waiting\n\n"
            if not desk.is_still(entry):
                yield event("end", "logged out")
                return
            messages, left_out = viewer.take()
            for message in messages:
                number += 1
                yield event("message", desk.text("_tail_row.html", message=message, shown=desk.line(message)), number)
            if left_out:
                yield event("left_out", str(left_out), number)
            if tail.task.done():
                yield event("end", "" if tail.error is None else str(tail.error), number)
                return

    return EventStream(events(), desk.closing, partial(desk.tails.leave, key, viewer))


async def _publish(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    fields = await desk.form(entry)
    topic = request.path_params["topic"]
    receipt = await publish(entry.watch, topic, fields)
    what = f"published {receipt.msg_id} to {topic}, queue {receipt.queue_id} of {receipt.broker}"
    return desk.done(entry, what, f"/topics/{quote(topic, safe='')}")


async def publish(watch: ClusterWatch, topic: str, fields: Mapping[str, str]) -> Receipt:
    """Send one message of the form. Raises ``MessageIllegal`` and the errors of a send."""
    if is_send_forbidden(topic):
        raise MessageIllegal("not published", why=f"{topic} is a system topic", hint="choose another topic")
    properties: dict[str, str] = {}
    for line in fields.get("properties", "").splitlines():
        name, equals, value = line.partition("=")
        if line.strip() and not (equals and name.strip()):
            raise MessageIllegal("not published", why="a property is NAME=VALUE, one on a line")
        if line.strip():
            properties[name.strip()] = value.strip()
    message = Message(
        topic,
        fields.get("body", "").encode(),
        tags=fields.get("tags", "").strip(),
        keys=fields.get("keys", "").split(),
        sharding_key=fields.get("sharding_key", "").strip() or None,
        properties=properties,
    )
    await watch.start()
    async with Producer(PRODUCER_GROUP, instance=watch.admin.instance) as producer:
        return await producer.send(message)


routes: Final = [
    Route("/topics", _topics),
    Route("/topics/{topic}", _topic),
    Route("/topics/{topic}/tail", _tail),
    Route("/topics/{topic}/publish", _publish, methods=["POST"]),
]
fragments: Final[dict[str, Fragment]] = {"topics": _topics_fragment}
