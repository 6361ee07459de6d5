"""All commands of ``pocketmq``, as typer shows and parses them.

Lives here: ``build_app`` and ``build_command``, the root options.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from pocketmq.cli import pipeline
from pocketmq.cli.admin import group, ha, lock, topic
from pocketmq.cli.bench import bench
from pocketmq.cli.config import command as config
from pocketmq.cli.daemon import cluster, daemon_commands
from pocketmq.cli.doctor import commands as doctor
from pocketmq.cli.exit_codes import EXIT_CODES_HELP
from pocketmq.cli.help_texts import literal_help
from pocketmq.cli.log import app as log
from pocketmq.cli.messages import consume, dlq, message, produce, reply, request, retry_store, trace, transaction
from pocketmq.cli.options import accept_former_names
from pocketmq.cli.scenario.command import scenario


@dataclass(slots=True)
class RootOptions:
    """The options before the subcommand."""

    debug: bool = False


def _show_version(value: bool) -> None:
    if value:
        from pocketmq import __version__

        print(f"pocketmq {__version__}")
        raise typer.Exit


def build_command(root: RootOptions) -> Any:
    """Return the whole command, ready to call, with its help texts as they are written."""
    command = typer.main.get_command(build_app(root))
    accept_former_names(command)
    return literal_help(command)


def build_app(root: RootOptions) -> typer.Typer:
    """Return the whole command; options before the subcommand are stored in ``root``."""
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

    serve: list[Callable[..., None]] = [
        daemon_commands.standalone,
        daemon_commands.namesrv,
        daemon_commands.broker,
        cluster.cluster,
    ]
    use: list[Callable[..., None]] = [
        produce.produce,
        consume.consume,
        request.request,
        reply.reply,
        bench.bench,
    ]
    for panel, commands in (("Serve", serve), ("Use", use)):
        for command in commands:
            app.command(rich_help_panel=panel)(command)
    app.command(rich_help_panel="Explain")(scenario)
    app.command(rich_help_panel="Explain")(trace.trace)
    app.add_typer(topic.build_app(), name="topic", rich_help_panel="Use")
    app.add_typer(group.build_app(), name="group", rich_help_panel="Use")
    app.add_typer(ha.build_app(), name="ha", rich_help_panel="Use")
    app.add_typer(message.build_app(), name="message", rich_help_panel="Use")
    app.add_typer(lock.build_app(), name="lock", rich_help_panel="Use")
    app.add_typer(dlq.build_app(), name="dlq", rich_help_panel="Use")
    app.add_typer(transaction.build_app(), name="transaction", rich_help_panel="Use")
    app.add_typer(retry_store.build_app(), name="retry-store", rich_help_panel="Use")
    app.add_typer(pipeline.build_app(), name="pipeline", rich_help_panel="Use")
    app.add_typer(config.build_app(), name="config", rich_help_panel="Check")
    app.add_typer(log.build_app(), name="log", rich_help_panel="Check")
    app.add_typer(doctor.build_app(), name="doctor", rich_help_panel="Explain")
    return app
