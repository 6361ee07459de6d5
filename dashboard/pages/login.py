"""Logging in as a user of the brokers, and out.

The user is tried: the name servers or brokers must recognize name and secret. Where they check nobody, nobody can log
in, since anybody could.

Lives here: ``routes``, ``checked``.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pocketmq.client.admin.access_admin import AccessAdmin
from pocketmq.client.admin.admin import Admin
from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.errors import BrokerAnswerError
from pocketmq.common.errors import PocketMQError
from pocketmq.dashboard.options import DashboardOptions
from pocketmq.dashboard.pages.desk import Desk, LogInFirst, desk_of
from pocketmq.dashboard.security.visits import Visit
from pocketmq.dashboard.watch.cluster_watch import needs_login
from pocketmq.remoting.security.credentials import Credentials

WRONG: Final = "No server knows this user with this secret."
TOO_OFTEN: Final = "Too many wrong secrets. Wait a minute."


class NobodyChecked(LogInFirst):
    """The servers let anybody in, so a log-in proves nothing."""


async def _login(request: Request) -> Response:
    desk = desk_of(request)
    return _form(desk, desk.visits.of(request), _local(request.query_params.get("to", "/")))


async def _log_in(request: Request) -> Response:
    desk = desk_of(request)
    visit = desk.visits.of(request)
    fields = await desk.checked_form(request, visit)
    to = _local(fields.get("to", "/"))
    address = "" if request.client is None else request.client.host
    if not desk.throttle.allows(address):
        desk.options.log.warning("dashboard_login_throttled", remote=address)
        return _form(desk, visit, to, TOO_OFTEN, 429)
    desk.throttle.failed(address)  # before the wait for the servers: tries at the same time count as well
    try:
        credentials = Credentials(fields.get("user", ""), fields.get("secret", ""))
        await checked(desk.options, credentials)
    except PocketMQError as error:
        desk.options.log.warning("dashboard_login_refused", user=fields.get("user", "")[:256], remote=address)
        refused = needs_login(error) or not fields.get("user") or not fields.get("secret")
        return _form(desk, visit, to, WRONG if refused else str(error), 403)
    desk.throttle.succeeded(address)
    entered = desk.visits.log_in(visit, credentials)
    desk.options.log.info("dashboard_login", user=credentials.access_key, remote=address)
    response = RedirectResponse(to, 303)
    desk.visits.set_cookie(entered, response)
    return response


async def checked(options: DashboardOptions, credentials: Credentials) -> None:
    """Return if the servers recognize the user. Raises what they answer, connection errors, ``NobodyChecked``."""
    instance = ClientInstance(options.namesrv, credentials=credentials, tls=options.tls)
    async with Admin(instance=instance) as admin:
        try:
            known = await AccessAdmin(admin).who_am_i()
        except BrokerAnswerError as error:
            if needs_login(error):
                raise
            known = {}  # RocketMQ does not say
        if any(each.how and each.username == credentials.access_key for each in known.values()):
            return
        if known or not await _checks_anybody(options):
            raise NobodyChecked(
                "nobody can log in",
                why="the servers check no user",
                hint="auth.authentication_enabled=true (docs/security.md), or a dashboard without --login",
            )
        for address in (await admin.masters()).values():
            await admin.broker_runtime(address)


async def _checks_anybody(options: DashboardOptions) -> bool:
    """Return whether a RocketMQ broker refuses a client without a user."""
    async with Admin(instance=ClientInstance(options.namesrv, tls=options.tls)) as admin:
        try:
            for address in (await admin.masters()).values():
                await admin.broker_runtime(address)
        except BrokerAnswerError:
            return True
    return False


async def _log_out(request: Request) -> Response:
    desk = desk_of(request)
    visit = desk.visits.of(request)
    await desk.checked_form(request, visit)
    if desk.visits.log_out(visit):
        await desk.watches.forget(visit.credentials)
    return RedirectResponse("/login", 303)


def _form(desk: Desk, visit: Visit, to: str, problem: str = "", status: int = 200) -> Response:
    response = Response(
        desk.text("login.html", title="Log in", visit=visit, to=to, problem=problem), status, media_type="text/html"
    )
    if visit.is_new:
        desk.visits.set_cookie(visit, response)
    return response


def _local(path: str) -> str:
    """Return a path of this dashboard, whatever a link asks for."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and "\\" not in path
    return path if is_local else "/"


routes: Final = [
    Route("/login", _login, methods=["GET"]),
    Route("/login", _log_in, methods=["POST"]),
    Route("/logout", _log_out, methods=["POST"]),
]
