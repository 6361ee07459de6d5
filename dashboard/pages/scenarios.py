"""The scenario player: start an incident on throw-away brokers, watch it, and read what cures it.

Lives here: ``routes``, ``fragments``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pocketmq.dashboard.live.player import Phase
from pocketmq.dashboard.pages.desk import Desk, Entry, Fragment, desk_of
from pocketmq.dashboard.pages.overview import refusals_of
from pocketmq.dashboard.show.sends_picture import sends_picture


async def _scenarios(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    return desk.page(
        entry,
        "scenarios.html",
        title="Scenarios",
        scenarios=desk.options.scenarios,
        run=desk.player.run,
        can_play=desk.player.can_play,
    )


async def _run(request: Request) -> Response:
    desk = desk_of(request)
    entry = await enter_run(desk, request)
    if entry is None:
        return desk.page(await desk.enter(request), "scenario_none.html", title="Scenario")
    run = desk.player.run
    assert run is not None
    return desk.live_page(entry, "scenario", "scenario.html", title=run.scenario.name, run=run)


async def enter_run(desk: Desk, request: Request) -> Entry | None:
    """Return an entry whose watch is that of the throw-away cluster; None: nothing is or was played."""
    entry = await desk.enter(request)
    run = desk.player.run
    if run is None:
        return None
    state = run.watch.state if run.is_over else await run.watch.look()
    return replace(entry, watch=run.watch, state=state)


def _fragment(desk: Desk, entry: Entry, query: Mapping[str, str]) -> str:
    run = desk.player.run
    if run is None:
        return ""
    state = run.watch.state
    pictures = [] if run.report is None else [sends_picture(_points(phase), phase.name) for phase in run.report.phases]
    return desk.text(
        "_scenario.html",
        run=run,
        state=state,
        refusals=refusals_of(replace(entry, state=state)),
        lines=list(run.lines)[-30:],
        pictures=pictures,
    )


def _points(phase: Phase) -> list[tuple[float, float, bool]]:
    outcomes = phase.outcomes
    return [
        (each.at_s, each.took_ms, 0 <= each.outcome < len(outcomes) and outcomes[each.outcome].delivered)
        for each in phase.points
    ]


async def _play(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    await desk.form(entry)
    run = await desk.player.play(request.path_params["name"])
    return desk.done(entry, f"{run.scenario.name} is played on throw-away brokers", "/scenario")


async def _stop(request: Request) -> Response:
    desk = desk_of(request)
    entry = await desk.enter(request)
    await desk.form(entry)
    await desk.player.stop()
    return desk.done(entry, "the scenario was stopped", "/scenario")


routes: Final = [
    Route("/scenarios", _scenarios),
    Route("/scenarios/{name}/play", _play, methods=["POST"]),
    Route("/scenario", _run),
    Route("/scenario/stop", _stop, methods=["POST"]),
]
fragments: Final[dict[str, Fragment]] = {"scenario": _fragment}
