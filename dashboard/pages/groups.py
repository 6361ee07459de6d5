"""Consumer groups: the list with lag in messages and time, one group with its members, and reset to a time.

Lives here: ``routes``, ``fragments``.
"""

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pocketmq.client.admin.admin import GroupDescription
from pocketmq.client.admin.group_admin import move_group, plan_moves
from pocketmq.client.pull.offsets import StartPosition
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.topics import is_retry_topic
from pocketmq.dashboard.pages.desk import Desk, Entry, Fragment, desk_of
from pocketmq.dashboard.pages.table import Wanted, part_of
from pocketmq.dashboard.show.words import moment, parse_moment
from pocketmq.dashboard.watch.state import is_system_group

TOPICS_MAX: Final = 50
"""Topics of one group whose lag in time a page asks for."""


async def _groups(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    return desk.live_page(entry, "groups", "groups.html", title="Groups", wanted=Wanted.of(request.query_params))


def _groups_fragment(desk: Desk, entry: Entry, query: Mapping[str, str]) -> str:
    wanted = Wanted.of(query)
    rows = [each for each in entry.state.groups.values() if not is_system_group(each.name) or each.topics]
    orders = {
        "lag": lambda each: -each.lag,
        "behind": lambda each: -(each.behind_ms or 0),
        "name": lambda each: each.name,
        "rate": lambda each: -each.tps,
    }
    part = part_of(rows, wanted, lambda each: each.name, orders)
    entry.watch.focus_groups(each.name for each in part.rows)
    return desk.text("_groups.html", state=entry.state, part=part, wanted=wanted, base="/groups")


async def _group(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    name = request.path_params["group"]
    await entry.watch.start()

    async def ask() -> tuple[GroupDescription, dict[str, int]]:
        admin = entry.watch.admin
        found = await admin.describe_group(name)
        masters = await admin.masters()
        lagging = sorted({each.queue.topic for each in found.queues if each.lag})[:TOPICS_MAX]

        async def behind(topic: str) -> int:
            ages = await asyncio.gather(
                *(entry.reader.behind_ms(address, name, topic) for address in masters.values()), return_exceptions=True
            )
            return max((each for each in ages if isinstance(each, int)), default=0)

        return found, dict(zip(lagging, await asyncio.gather(*map(behind, lagging)), strict=True))

    group, behind = await desk.answers.get((entry.visit.credentials, "group", name), ask)
    entry.watch.focus_groups([name])
    topics = {each.queue.topic for each in group.queues} | set(group.subscriptions)
    return desk.page(
        entry,
        "group.html",
        title=f"Group {name}",
        group=group,
        behind=behind,
        topics=sorted(topics, key=lambda topic: (is_retry_topic(topic), topic)),
        known=entry.state.groups.get(name),
    )


async def _reset(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    fields = await desk.form(entry)
    group, topic = request.path_params["group"], fields.get("topic", "")
    to, words = _position(fields)
    admin = await entry.watch.start()
    moves = await plan_moves(admin, group, topic, to)
    await move_group(admin, group, moves, to, force=fields.get("force") == "yes")
    changed = sum(each.before != each.after for each in moves)
    what = f"group {group} reset to {words} in {topic}: {changed} of {len(moves)} queues moved"
    return desk.done(entry, what, f"/groups/{quote(group, safe='')}")


def _position(fields: Mapping[str, str]) -> tuple[StartPosition, str]:
    """Return where to, and how to say it. Raises ``MessageIllegal``."""
    to = fields.get("to", "")
    if to == "earliest":
        return "earliest", "the first message"
    if to == "latest":
        return "latest", "the end"
    try:
        at_ms = parse_moment(fields.get("time", ""))
    except ValueError as error:
        raise MessageIllegal("not reset", why=str(error), hint="a time in UTC: 2026-11-23T07:00") from error
    return at_ms, moment(at_ms)


routes: Final = [
    Route("/groups", _groups),
    Route("/groups/{group}", _group),
    Route("/groups/{group}/reset", _reset, methods=["POST"]),
]
fragments: Final[dict[str, Fragment]] = {"groups": _groups_fragment}
