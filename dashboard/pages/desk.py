"""What all pages share: the visitor, the watch of the cluster, templates, forms, and notes about what was done.

Lives here: ``Desk``, ``Entry``; the errors that become pages: ``LogInFirst``, ``NotAllowed``.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.dashboard.live.player import Player
from pocketmq.dashboard.live.shared_answers import SharedAnswers
from pocketmq.dashboard.live.tail import Tails
from pocketmq.dashboard.options import DashboardOptions
from pocketmq.dashboard.security.throttle import Throttle
from pocketmq.dashboard.security.visits import Visit, Visits
from pocketmq.dashboard.show import bodies, words
from pocketmq.dashboard.show.sparkline import sparkline
from pocketmq.dashboard.watch.cluster_watch import ClusterWatch
from pocketmq.dashboard.watch.reading import ClusterReader
from pocketmq.dashboard.watch.state import ClusterState
from pocketmq.dashboard.watch.watches import Watches

FIELDS_MAX: Final = 100
NOTES_MAX: Final = 1_000
FRAGMENTS_MAX: Final = 64
NAVIGATION: Final = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/messages", "Messages"),
    ("/dead-letters", "Dead letters"),
    ("/waiting", "Waiting"),
    ("/replication", "Replication"),
    ("/connections", "Connections"),
    ("/scenarios", "Scenarios"),
)


class LogInFirst(PocketMQError):
    """The page is for users who have logged in."""

    default_cause = Cause.NO_PERMISSION


class NotAllowed(PocketMQError):
    """The dashboard changes nothing, or the change was not asked for by one of its own forms."""

    default_cause = Cause.NO_PERMISSION


@dataclass(frozen=True, slots=True)
class Entry:
    """One request that was let in: its visitor, the visitor's watch, and the state of the cluster."""

    request: Request
    visit: Visit
    watch: ClusterWatch
    state: ClusterState

    @property
    def reader(self) -> ClusterReader:
        """Questions to brokers, with the visitor's rights."""
        return self.watch.reader

    def query(self, name: str, length_max: int = 255) -> str:
        """Return a value of the query string, cut."""
        return self.request.query_params.get(name, "").strip()[:length_max]


Fragment = Callable[["Desk", Entry, Mapping[str, str]], str]
"""Makes the moving part of a page from the state; asks nobody."""


class Desk:
    """The parts of one dashboard."""

    def __init__(self, options: DashboardOptions) -> None:
        self.options = options
        self.visits = Visits(options)
        self.watches = Watches(options)
        self.tails = Tails(options)
        self.player = Player(options)
        self.throttle = Throttle()
        self.answers = SharedAnswers()
        self.fragments: dict[str, Fragment] = {}
        self.viewers = 0
        self.promoting = asyncio.Lock()
        self.closing = asyncio.Event()
        """Set when the server is about to stop: it would wait for streams."""
        self._notes: dict[str, str] = {}
        self._made: dict[object, str] = {}
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("pocketmq.dashboard", "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters.update(
            count=words.count,
            counted=words.counted,
            rate=words.rate,
            size=words.size,
            span=words.span,
            moment=words.moment,
            number=words.number,
            visible=bodies.visible,
            segment=lambda text: quote(text, safe=""),
        )
        self._templates.globals.update(
            spark=sparkline, writes=options.allow_writes, hide_bodies=options.hide_bodies, navigation=NAVIGATION
        )

    # ---- requests

    async def enter(self, request: Request) -> Entry:
        """Let a visitor in. Raises ``LogInFirst``."""
        visit = self.visits.of(request)
        if self.options.login and not self.visits.is_logged_in(visit):
            raise LogInFirst("log in first")
        watch = await self.watches.of(visit.credentials)
        state = await watch.look()
        if state.needs_login and visit.credentials is None:
            raise LogInFirst("log in first")
        return Entry(request, visit, watch, state)

    def is_still(self, entry: Entry) -> bool:
        """Return whether the visitor of an open page has not logged out meanwhile."""
        return self.visits.of(entry.request, is_here=False).credentials == entry.visit.credentials

    async def form(self, entry: Entry) -> dict[str, str]:
        """Return the fields of a form that changes something. Raises ``NotAllowed``."""
        if not self.options.allow_writes:
            raise NotAllowed(
                "nothing was changed", why="this dashboard is read-only", hint="pocketmq dashboard --allow-writes"
            )
        return await self.checked_form(entry.request, entry.visit)

    async def checked_form(self, request: Request, visit: Visit) -> dict[str, str]:
        """Return the fields of a form of ours. Raises ``NotAllowed``."""
        if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
            raise NotAllowed("nothing was changed", why="it is no form")
        try:
            pairs = parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
        except ValueError as error:
            raise NotAllowed("nothing was changed", why=f"the form cannot be read: {error}") from error
        fields = dict(pairs)
        if not self.visits.is_meant(request, visit, fields.pop("token", "")):
            raise NotAllowed(
                "nothing was changed",
                why="the request did not come from a page of this dashboard, or that page is too old",
                hint="load the page again, and allow its cookie",
            )
        return fields

    def viewer_left(self) -> None:
        """Note that a page that moved has been closed."""
        self.viewers -= 1

    # ---- answers

    def page(self, entry: Entry, template: str, *, status: int = 200, **context: Any) -> Response:
        """Return a whole page."""
        text = self.text(
            template,
            visit=entry.visit,
            state=entry.state,
            path=entry.request.url.path,
            note=self._notes.pop(entry.visit.id, ""),
            can_log_out=self.visits.is_logged_in(entry.visit),
            **context,
        )
        response = HTMLResponse(text, status)
        if entry.visit.is_new:
            self.visits.set_cookie(entry.visit, response)
        return response

    def live_page(self, entry: Entry, name: str, template: str, **context: Any) -> Response:
        """Return a page whose part ``name`` moves."""
        query = entry.request.url.query
        live = f"/live/{name}{'?' + query if query else ''}"
        return self.page(entry, template, live=live, fragment=self.fragment(entry, name), **context)

    def fragment(self, entry: Entry, name: str) -> str:
        """Return the moving part of a page; viewers of the same part share one."""
        query = dict(entry.request.query_params)
        key = (entry.watch.number, name, entry.state.revision, tuple(sorted(query.items())))
        made = self._made.get(key)
        if made is None:
            made = self.fragments[name](self, entry, query)
            while len(self._made) >= FRAGMENTS_MAX:
                del self._made[next(iter(self._made))]
            self._made[key] = made
        return made

    def text(self, template: str, **context: Any) -> str:
        """Return a filled template."""
        return self._templates.get_template(template).render(**context)

    def line(self, message: ReceivedMessage) -> str:
        """Return the beginning of a message's body in one line."""
        return bodies.line(message, hide=self.options.hide_bodies)

    def done(self, entry: Entry, what: str, to: str) -> Response:
        """Record a change, and return to a page that says so."""
        self.record(entry, what)
        self.note(entry, what)
        return RedirectResponse(to, 303)

    def record(self, entry: Entry, what: str) -> None:
        """Log a change: who asked for it, from where."""
        client = entry.request.client
        self.options.log.info(
            "dashboard_change", what=what, user=entry.visit.user, remote="" if client is None else client.host
        )
        self.answers.forget()

    def note(self, entry: Entry, text: str) -> None:
        """Show ``text`` on this visitor's next page."""
        while len(self._notes) >= NOTES_MAX:
            del self._notes[next(iter(self._notes))]
        self._notes[entry.visit.id] = text

    async def stop(self) -> None:
        """End the player, tails and watches."""
        await self.player.close()
        await self.tails.stop()
        await self.watches.stop()


def desk_of(request: Request) -> Desk:
    """Return the desk of the application."""
    desk: Desk = request.app.state.desk
    return desk
