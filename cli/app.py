"""All commands of ``pocketmq``, as typer shows and parses them.

Lives here: ``COMMANDS``, the table of commands; ``build_app`` and ``build_command``, the root options.

A command's module is imported when the command runs, or when help shows all of them: ``pocketmq topic list`` does not
pay for Spark's jobs and scenarios.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from pocketmq.cli.exit_codes import EXIT_CODES_HELP
from pocketmq.cli.help_texts import literal_help
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
    Row("cluster", "Serve", "daemon.cluster", "cluster"),
    Row("produce", "Use", "messages.produce", "produce"),
    Row("consume", "Use", "messages.consume", "consume"),
    Row("request", "Use", "messages.request", "request"),
    Row("reply", "Use", "messages.reply", "reply"),
    Row("worker", "Use", "worker.command", "worker"),
    Row("bench", "Use", "bench.bench", "bench"),
    Row("brokers", "Use", "admin.brokers", "brokers"),
    Row("scenario", "Explain", "scenario.command", "scenario"),
    Row("trace", "Explain", "messages.trace", "trace"),
    Row("topic", "Use", "admin.topic"),
    Row("group", "Use", "admin.group"),
    Row("ha", "Use", "admin.ha"),
    Row("message", "Use", "messages.message"),
    Row("lock", "Use", "admin.lock"),
    Row("dlq", "Use", "messages.dlq"),
    Row("transaction", "Use", "messages.transaction"),
    Row("retry-store", "Use", "messages.retry_store"),
    Row("pipeline", "Use", "pipeline"),
    Row("config", "Check", "config.command"),
    Row("log", "Check", "log.app"),
    Row("doctor", "Explain", "doctor.commands"),
)
"""Every command, in the order of the help."""


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
    name = next((each for each in arguments if not each.startswith("-")), "")
    command = typer.main.get_command(build_app(root, [row for row in COMMANDS if row.name == name] or COMMANDS))
    accept_former_names(command)
    return literal_help(command)


def build_app(root: RootOptions, commands: Sequence[Row] = COMMANDS) -> typer.Typer:
    """Return the app with these commands; options before the subcommand are stored in ``root``."""
    app = typer.Typer(
        name="pocketmq",
        help="A durable, ordered message broker in pure Python with RocketMQ's semantics.",
        epilog=EXIT_CODES_HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def options(
        debug: Annotated[bool, typer.Option("--debug", envvar="POCKETMQ_DEBUG", help="Show tracebacks.")] = False,
        _version: Annotated[
            bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
        ] = False,
    ) -> None:
        root.debug = debug

    for row in commands:
        found = getattr(importlib.import_module(f"pocketmq.cli.{row.module}"), row.function)
        if row.function == "build_app":
            app.add_typer(found(), name=row.name, rich_help_panel=row.panel)
        else:
            app.command(row.name, rich_help_panel=row.panel)(found)
    return app
