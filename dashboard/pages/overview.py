"""The first page: rates, lag, health with its reasons, refusals by cause, what the doctor finds.

Lives here: ``routes``, ``fragments``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pocketmq.common.refusals import REFUSALS
from pocketmq.dashboard.pages.desk import Desk, Entry, Fragment, desk_of

TOP: Final = 10
REASONS_MAX: Final = 8
_CURES: Final = {cause.value: row.cure for cause, row in REFUSALS.items()}


@dataclass(slots=True)
class Refusals:
    """The refusals of one cause and text, by all brokers. ``last_ms``: the latest, ms since 1970."""

    cause: str
    text: str
    cure: str
    total: int = 0
    last_minute: int = 0
    last_ms: int = 0


async def _overview(request: Request) -> Response:
    desk = desk_of(request)
    return desk.live_page(await desk.enter(request), "overview", "overview.html", title="Overview")


def _fragment(desk: Desk, entry: Entry, query: Mapping[str, str]) -> str:
    state = entry.state
    health, reasons = state.health()
    groups = sorted((each for each in state.groups.values() if each.lag), key=lambda each: (-each.lag, each.name))
    topics = sorted(
        (each for each in state.topics.values() if each.rate > 0 and each.kind != "system"), key=lambda each: -each.rate
    )
    return desk.text(
        "_overview.html",
        state=state,
        health=health,
        reasons=reasons[:REASONS_MAX],
        reasons_more=max(0, len(reasons) - REASONS_MAX),
        lagging=groups[:TOP],
        busiest=sorted(topics, key=lambda each: -each.rate)[:TOP],
        refusals=refusals_of(entry)[:TOP],
    )


def refusals_of(entry: Entry) -> list[Refusals]:
    """Return the refusals of all brokers by cause, those of the last minute first, each with its cure."""
    found: dict[tuple[str, str], Refusals] = {}
    for broker in entry.state.brokers.values():
        for each in broker.telemetry.refusals if broker.telemetry is not None else ():
            if each.total:
                row = Refusals(each.cause, each.remark, _CURES.get(each.cause, ""))
                row = found.setdefault((each.cause, each.remark), row)
                row.total += each.total
                row.last_minute += each.last_minute
                row.last_ms = max(row.last_ms, each.last_ms)
    return sorted(found.values(), key=lambda row: (-row.last_minute, -row.total))


routes: Final = [Route("/", _overview)]
fragments: Final[dict[str, Fragment]] = {"overview": _fragment}
