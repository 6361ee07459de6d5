"""All commands of ``pocketmq``, as typer shows and parses them.

Lives here: ``COMMANDS``, the table of commands; ``build_app`` and ``build_command``, the root options.

A command's module is imported when the command runs, or when help shows all of them: ``pocketmq topic list`` does not
pay for Spark's jobs and scenarios.
"""

import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from pocketmq.cli.connection import OPTIONS, connect_with
from pocketmq.cli.exit_codes import EXIT_CODES_HELP
from pocketmq.cli.help_texts import HELP_OPTIONS, literal_help
from pocketmq.cli.options import accept_former_names


@dataclass(slots=True, frozen=True)
class Row:
    """A command: its name, its place in the help, its module, and the function in it. ``build_app`` in a module makes
    a group of subcommands."""

    name: str
    panel: str
    module: str
    function: str = "build_app"


COMMANDS: Final = (
    Row("standalone", "Serve", "daemon.daemon_commands", "standalone"),
    Row("namesrv", "Serve", "daemon.daemon_commands", "namesrv"),
    Row("broker", "Serve", "daemon.daemon_commands", "broker"),
    Row("init", "Serve", "init", "init"),
    Row("cluster", "Serve", "daemon.cluster", "cluster"),
    Row("dashboard", "Serve", "dashboard.command", "dashboard"),
    Row("produce", "Use", "messages.produce", "produce"),
    Row("consume", "Use", "messages.consume", "consume"),
    Row("request", "Use", "messages.request", "request"),
    Row("reply", "Use", "messages.reply", "reply"),
    Row("worker", "Use", "worker.command", "worker"),
    Row("bench", "Use", "bench.bench", "bench"),
    Row("brokers", "Use", "admin.brokers", "brokers"),
    Row("top", "Use", "top.command", "top"),
    Row("scenario", "Explain", "scenario.command", "scenario"),
    Row("trace", "Explain", "messages.trace", "trace"),
    Row("explain", "Explain", "explain.command", "explain"),
    Row("whoami", "Explain", "admin.whoami", "whoami"),
    Row("topic", "Use", "admin.topic"),
    Row("group", "Use", "admin.group"),
    Row("ha", "Use", "admin.ha"),
    Row("user", "Use", "admin.user"),
    Row("acl", "Use", "admin.acl"),
    Row("message", "Use", "messages.message"),
    Row("lock", "Use", "admin.lock"),
    Row("dlq", "Use", "messages.dlq"),
    Row("transaction", "Use", "messages.transaction"),
    Row("retry-store", "Use", "messages.retry_store"),
    Row("pipeline", "Use", "pipeline"),
    Row("config", "Check", "config.command"),
    Row("tls", "Check", "tls.command"),
    Row("log", "Check", "log.app"),
    Row("doctor", "Explain", "doctor.commands"),
)
"""Every command, in the order of the help."""


ROOT_OPTIONS_WITH_VALUE: Final = frozenset(
    f"--{name.replace('_', '-')}" for name in (*OPTIONS, "connection") if name != "tls"
)


@dataclass(slots=True)
class RootOptions:
    """The options before the subcommand."""

    debug: bool = False


def _show_version(value: bool) -> None:
    if value:
        from pocketmq import __version__

        print(f"pocketmq {__version__}")
        raise typer.Exit


def build_command(root: RootOptions, arguments: Sequence[str] = ()) -> Any:
    """Return the command, ready to call, with its help texts as they are written.

    ``arguments``: what it will be called with; where they name a command, only that one is there.
    """
    name = _command_in(arguments)
    command = typer.main.get_command(build_app(root, [row for row in COMMANDS if row.name == name] or COMMANDS))
    accept_former_names(command)
    return literal_help(command)


def _command_in(arguments: Sequence[str]) -> str:
    """Return the first argument that is neither an option of the root nor its value."""
    is_value = False
    for each in arguments:
        if not is_value and not each.startswith("-"):
            return each
        is_value = not is_value and each in ROOT_OPTIONS_WITH_VALUE
    return ""


def build_app(root: RootOptions, commands: Sequence[Row] = COMMANDS) -> typer.Typer:
    """Return the app with these commands; options before the subcommand are stored in ``root``."""
    app = typer.Typer(
        name="pocketmq",
        help="A durable, ordered message broker in pure Python with RocketMQ's semantics.",
        epilog=EXIT_CODES_HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": HELP_OPTIONS},
    )

    @app.callback()
    def options(
        context: typer.Context,
        debug: Annotated[bool, typer.Option("--debug", envvar="POCKETMQ_DEBUG", help="Show tracebacks.")] = False,
        _connection: Annotated[
            str, typer.Option("--connection", metavar="NAME", help="A table of ~/.config/pocketmq/connections.toml.")
        ] = "",
        _access_key: Annotated[
            str, typer.Option("--access-key", metavar="NAME", help="The user; environment: POCKETMQ_ACCESS_KEY.")
        ] = "",
        _secret_key_file: Annotated[
            str,
            typer.Option(
                "--secret-key-file",
                metavar="FILE",
                help="The user's secret, or RocketMQ's tools.yml; environment: POCKETMQ_SECRET_KEY, or …_FILE.",
            ),
        ] = "",
        _tls: Annotated[
            bool | None, typer.Option("--tls/--no-tls", help="Encrypt; environment: POCKETMQ_TLS, as for the others.")
        ] = None,
        _tls_ca: Annotated[
            str, typer.Option("--tls-ca", metavar="FILE", help="CA to trust, in PEM.  [default: those of the system]")
        ] = "",
        _tls_cert: Annotated[
            str, typer.Option("--tls-cert", metavar="FILE", help="The client's own certificate, in PEM.")
        ] = "",
        _tls_key: Annotated[str, typer.Option("--tls-key", metavar="FILE", help="The key of that certificate.")] = "",
        _tls_server_hostname: Annotated[
            str,
            typer.Option("--tls-server-hostname", metavar="NAME", help="The name in the certificate of each server."),
        ] = "",
        _version: Annotated[
            bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
        ] = False,
    ) -> None:
        root.debug = debug
        namesrv = connect_with(context.params, os.environ)
        if namesrv:  # from here on it is as if the user had set it: for --namesrv, and for processes of the command
            os.environ["POCKETMQ_NAMESRV"] = namesrv

    for row in commands:
        found = getattr(importlib.import_module(f"pocketmq.cli.{row.module}"), row.function)
        if row.function == "build_app":
            app.add_typer(found(), name=row.name, rich_help_panel=row.panel)
        else:
            app.command(row.name, rich_help_panel=row.panel)(found)
    return app
