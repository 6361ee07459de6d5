"""Connections: which clients produce and consume, from where, in which language and version.

Lives here: ``routes``, ``fragments``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pocketmq.common.topics import is_retry_topic
from pocketmq.dashboard.pages.desk import Desk, Entry, Fragment, desk_of
from pocketmq.dashboard.pages.table import Wanted, part_of
from pocketmq.dashboard.watch.state import is_system_group
from pocketmq.remoting.codes import version_name

TOPICS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Client:
    """One client of a group at a broker. ``topics``: what it sends to, or reads; ``seen_ms``: its last heartbeat, 0 if
    that is not told."""

    group: str
    broker: str
    client_id: str
    address: str
    language: str
    version: str
    topics: list[str]
    seen_ms: int = 0

    @property
    def name(self) -> str:
        """What a search looks at."""
        return f"{self.group} {self.client_id} {self.address} {' '.join(self.topics)}"


async def _connections(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    wanted = Wanted.of(request.query_params)
    return desk.live_page(entry, "connections", "connections.html", title="Connections", wanted=wanted)


def _fragment(desk: Desk, entry: Entry, query: Mapping[str, str]) -> str:
    wanted = Wanted.of(query)
    kind = "consumers" if wanted.kind == "consumers" else "producers"
    rows = _producers(entry) if kind == "producers" else _consumers(entry)
    orders = {
        "group": lambda each: each.group,
        "client": lambda each: each.client_id,
        "address": lambda each: each.address,
        "language": lambda each: each.language,
    }
    part = part_of(rows, wanted, lambda each: each.name, orders)
    return desk.text("_connections.html", state=entry.state, part=part, wanted=wanted, kind=kind, base="/connections")


def _producers(entry: Entry) -> list[Client]:
    return [
        Client(
            group,
            broker,
            each.client_id,
            each.remote_ip,
            each.language,
            version_name(each.version),
            each.topics[:TOPICS_MAX],
            each.last_update_timestamp,
        )
        for group, producers in entry.state.producers.items()
        for broker, each in producers
    ]


def _consumers(entry: Entry) -> list[Client]:
    """Return the members of the groups, as far as the watch has asked for them: it asks for some in each look."""
    entry.watch.want_members()
    return [
        Client(
            group.name,
            broker,
            each.client_id,
            each.client_addr,
            each.language,
            version_name(each.version),
            sorted(topic for topic in group.topics if not is_retry_topic(topic))[:TOPICS_MAX],
        )
        for group in entry.state.groups.values()
        if not is_system_group(group.name)
        for broker, each in group.connections
    ]


routes: Final = [Route("/connections", _connections)]
fragments: Final[dict[str, Fragment]] = {"connections": _fragment}
