"""The dashboard as an ASGI application.

    app = create_app(DashboardOptions(namesrv="127.0.0.1:9876"))        # uvicorn, or any other ASGI server

Lives here: ``create_app``; the way from errors to pages; the stream of a page that moves.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from pocketmq.client.admin.admin import NotFound
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.dashboard.live.event_stream import EventStream, event
from pocketmq.dashboard.options import DashboardOptions
from pocketmq.dashboard.pages import (
    connections,
    dead_letters,
    groups,
    login,
    messages,
    overview,
    replication,
    scenarios,
    topics,
    waiting,
)
from pocketmq.dashboard.pages.desk import Desk, Entry, LogInFirst, desk_of
from pocketmq.dashboard.security.guard import Guard

VIEWERS_MAX: Final = 250
"""Pages that move at the same time; one more is shown without moving."""
ALIVE_S: Final = 15.0
MODULES: Final = (overview, topics, groups, messages, dead_letters, waiting, replication, connections, scenarios, login)
_STATUS: Final = {
    Cause.NO_PERMISSION: 403,
    Cause.BAD_REQUEST: 400,
    Cause.CODEC: 400,
    Cause.NO_ROUTE: 404,
    Cause.CONNECTION_LIMIT: 503,
    Cause.TIMEOUT: 504,
}


def create_app(options: DashboardOptions) -> Starlette:
    """Return the application. It connects at the first request, and closes what it opened when its lifespan ends."""
    desk = Desk(options)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await desk.stop()

    routes: list[Route | Mount] = [
        Route("/live/{name}", _live),
        Route("/alive", _alive),
        Mount("/static", StaticFiles(packages=[("pocketmq.dashboard", "static")])),
    ]
    for module in MODULES:
        routes += module.routes
        desk.fragments.update(getattr(module, "fragments", {}))
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Guard, hosts=options.hosts)],
        exception_handlers={PocketMQError: _refused, HTTPException: _http_error},
    )
    app.state.desk = desk
    return app


async def _alive(request: Request) -> Response:
    """Answer without asking anybody: for who started the process, and for its container."""
    return PlainTextResponse("ok\n")


async def _live(request: Request) -> Response:
    """Send the moving part of a page whenever it has changed."""
    desk = desk_of(request)
    name = request.path_params["name"]
    if name not in desk.fragments:
        raise HTTPException(404)
    entry = await scenarios.enter_run(desk, request) if name in scenarios.fragments else await desk.enter(request)
    if entry is None:
        raise HTTPException(404)
    if desk.viewers >= VIEWERS_MAX:
        return PlainTextResponse("too many viewers\n", 503, {"Retry-After": "10"})
    desk.viewers += 1  # before anything waits: many may come at the same time
    return EventStream(_changes(desk, entry, name), desk.closing, desk.viewer_left)


async def _changes(desk: Desk, entry: Entry, name: str) -> AsyncGenerator[bytes, None]:
    last = ""
    revision = -1
    while True:
        try:
            state = await asyncio.wait_for(entry.watch.changed(revision), ALIVE_S)
        except TimeoutError:
            yield b": waiting\n\n"
            continue
        if not desk.is_still(entry):
            yield event("end", "")
            return
        revision = state.revision
        text = desk.fragment(entry, name)
        if text != last:
            last = text
            yield event("page", text, revision)


async def _refused(request: Request, error: Exception) -> Response:
    """Show what happened, why, and what to do."""
    assert isinstance(error, PocketMQError)
    desk = desk_of(request)
    if isinstance(error, LogInFirst):
        if request.url.path.startswith("/live/") or request.url.path.endswith("/tail"):
            return PlainTextResponse("log in first\n", 401)
        query = f"?{request.url.query}" if request.url.query else ""
        to = quote(request.url.path + query) if request.method == "GET" else "/"
        return RedirectResponse(f"/login?to={to}", 303)
    status = 404 if isinstance(error, NotFound) else _STATUS.get(error.cause, 502)
    text = desk.text("refused.html", error=error, title="Not done", back=_back(request), status=status)
    return Response(text, status, media_type="text/html")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = desk_of(request).text(
        "refused.html",
        error=PocketMQError("there is no such page" if error.status_code == 404 else error.detail),
        title=str(error.status_code),
        back="/",
        status=error.status_code,
    )
    return Response(text, error.status_code, media_type="text/html", headers=error.headers)


def _back(request: Request) -> str:
    """Return the path of the page that the visitor came from, if it is one of ours."""
    parts = urlsplit(request.headers.get("referer", ""))
    if parts.netloc != request.headers.get("host", "") or not parts.path.startswith("/"):
        return "/"
    return parts.path.replace("//", "/") + (f"?{parts.query}" if parts.query else "")
