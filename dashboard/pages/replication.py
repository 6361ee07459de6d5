"""Replication: roles, epochs and lag of the brokers of each name, and promotion behind a confirmation.

Lives here: ``routes``.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pocketmq.client.admin.ha_admin import Group, HaAdmin
from pocketmq.client.admin.promotion import promote
from pocketmq.common.errors import MessageIllegal, PocketMQError
from pocketmq.dashboard.pages.desk import Entry, desk_of
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.ha import HaRuntimeBody

NAMES_MAX: Final = 32
"""Broker names on the page."""


@dataclass(slots=True)
class Replicas:
    """The brokers of one name. ``group`` None: it could not be read, ``problem`` says why. ``rocketmq``: what
    RocketMQ's brokers of this name report (907, RocketMQ 5), by address."""

    name: str
    group: Group | None = None
    problem: str = ""
    rocketmq: dict[str, HaRuntimeBody] = field(default_factory=dict)


async def _replication(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    await entry.watch.start()
    names = sorted({each.name for each in entry.state.brokers.values()})

    async def ask() -> list[Replicas]:
        return list(await asyncio.gather(*(_replicas(entry, name) for name in names[:NAMES_MAX])))

    replicas = await desk.answers.get((entry.visit.credentials, "replication"), ask)
    more = max(0, len(names) - NAMES_MAX)
    return desk.page(entry, "replication.html", title="Replication", replicas=replicas, more=more)


async def _replicas(entry: Entry, name: str) -> Replicas:
    found = Replicas(name)
    try:
        found.group = await HaAdmin(entry.watch.admin).group(name)
    except PocketMQError as error:
        found.problem = str(error)
        return found
    for address in sorted(found.group.rocketmq):
        try:
            answer = await entry.reader.ask(address, RequestCode.GET_BROKER_HA_STATUS, None, "not told")
            found.rocketmq[address] = decode_body(answer.body, HaRuntimeBody)
        except PocketMQError:  # RocketMQ 4 has no request for it: ``silent`` says what it is
            continue
    return found


async def _promote(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    fields = await desk.form(entry)
    name = request.path_params["name"]
    if fields.get("confirm", "").strip() != name:
        raise MessageIllegal("not promoted", why=f"the confirmation is not {name}", hint="type the broker's name")
    if desk.promoting.locked():
        raise MessageIllegal("not promoted", why="another promotion is under way", hint="wait for its end")
    admin = await entry.watch.start()
    steps: list[str] = []
    desk.record(entry, f"promotion of {fields.get('to') or 'the most advanced slave'} of {name} begins")
    async with desk.promoting:
        promoted = await promote(HaAdmin(admin), name, to=fields.get("to", "").strip(), report=steps.append)
    what = f"{promoted.master.address} is {promoted.master.role} of {name} in epoch {promoted.master.epoch}. "
    return desk.done(entry, what + "; ".join(steps), "/replication")


routes: Final = [
    Route("/replication", _replication),
    Route("/replication/{name}/promote", _promote, methods=["POST"]),
]
