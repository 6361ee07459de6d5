"""``pocketmq dashboard``: options, and who may reach the pages.

Lives here: the command; ``must_log_in``, which decides whether a bind address is safe.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pocketmq.cli import options
from pocketmq.cli.connection import given
from pocketmq.cli.exit_codes import CannotStart
from pocketmq.cli.run import run_async
from pocketmq.common.addresses import is_loopback_host
from pocketmq.common.errors import ConfigError, PocketMQError

if TYPE_CHECKING:
    from pocketmq.common.events import EventLog

PORT: Final = 8088
LOGGER: Final = "pocketmq.dashboard"


def dashboard(
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free port.")] = PORT,
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Let visitors publish, reset, resend, decide, promote and play.")
    ] = False,
    login: Annotated[
        bool, typer.Option("--login", help="Every visitor logs in as a user of the brokers, whatever they demand.")
    ] = False,
    as_me: Annotated[
        bool,
        typer.Option("--as-me", help="Act as the user of this command for everyone on this machine, without a log-in."),
    ] = False,
    is_open: Annotated[
        bool, typer.Option("--open", help="Serve beyond loopback without a log-in: the network is trusted.")
    ] = False,
    allow_hosts: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A name that browsers use for this dashboard; repeatable."),
    ] = None,
    hide_bodies: Annotated[bool, typer.Option("--hide-bodies", help="Show no bodies of messages.")] = False,
    https_cert: Annotated[
        str, typer.Option("--https-cert", metavar="FILE", help="Serve HTTPS with this certificate, in PEM.")
    ] = "",
    https_key: Annotated[str, typer.Option("--https-key", metavar="FILE", help="The key of that certificate.")] = "",
) -> None:
    """Serve web pages that show a cluster, PocketMQ's or RocketMQ's: rates, lag, messages, health.

    Prints "ready dashboard=http://HOST:PORT/" when it serves. Read-only unless --allow-writes is given. Where the
    brokers demand a user, visitors log in as one. Needs pip install 'pocketmq[dashboard]'.
    """
    _import()
    if bool(https_cert) != bool(https_key):
        raise ConfigError("bad options", why="--https-cert and --https-key belong together", hint="give both")
    connection = given()
    if as_me and connection["credentials"] is None:
        raise ConfigError("bad --as-me", why="this command has no user", hint="--access-key and --secret-key-file")
    if as_me and (login or not is_loopback_host(host)):
        raise ConfigError("bad --as-me", why="it is for pages without a log-in on loopback", hint="leave it out")
    from pocketmq.cli.dashboard.findings import findings_of
    from pocketmq.cli.dashboard.serving import Listening, serve
    from pocketmq.cli.scenario.catalog import CATALOG
    from pocketmq.dashboard.options import DashboardOptions, ScenarioInfo

    if not is_loopback_host(host) and not is_open and not login:
        login = bool(run_async(_demands_user(namesrv)))
        must_log_in(host, login)
    chosen = DashboardOptions(
        namesrv=namesrv,
        credentials=connection["credentials"] if as_me else None,
        tls=connection["tls"],
        allow_writes=allow_writes,
        login=login,
        hosts=(*(allow_hosts or ()), host),
        https=bool(https_cert),
        hide_bodies=hide_bodies,
        doctor=findings_of,
        scenarios=tuple(ScenarioInfo(each.name, each.incident, each.question) for each in CATALOG),
        scenario_command=(sys.executable, "-m", "pocketmq.cli.main", "scenario"),
        log=_log(),
    )
    listening = Listening(host, port, https_cert, https_key)
    listener = listening.bind()
    run_async(serve(chosen, listening, listener))


def must_log_in(host: str, demanded: bool) -> None:
    """Raise ``CannotStart`` where strangers could look at a cluster that knows no users."""
    if not demanded:
        raise CannotStart(
            "the dashboard does not start",
            why=f"--host {host} lets other machines connect, and the cluster demands no user",
            hint="--login demands one, --open says that the network is trusted (docs/dashboard.md)",
        )


async def _demands_user(namesrv: str) -> bool:
    """Return whether the name servers refuse a client without a user. Raises connection errors."""
    from pocketmq.client.admin.admin import Admin
    from pocketmq.dashboard.watch.cluster_watch import needs_login

    async with Admin(namesrv, **given() | {"credentials": None}) as admin:
        try:
            await admin.cluster_info()
        except PocketMQError as error:
            if needs_login(error):
                return True
            raise
    return False


def _log() -> "EventLog":
    """Return a log whose log-ins and changes go to standard error."""
    import logging

    from pocketmq.client.log import StandardLog

    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.INFO)
    return StandardLog(logger)


def _import() -> None:
    """Raise ``ConfigError`` where the extra is missing."""
    try:
        import jinja2  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "no dashboard", why=f"{error.name} is not installed", hint="pip install 'pocketmq[dashboard]'"
        ) from error
