"""The group of subcommands ``pocketmq log``.

Lives here: which there are.
"""

import typer

from pocketmq.cli.log import dump, export, repair, verify


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    app = typer.Typer(
        help="Check, read, copy and repair a store directory, ours or RocketMQ's, without a broker.",
        no_args_is_help=True,
    )
    app.command()(verify.verify)
    app.command()(dump.dump)
    app.command()(export.export)
    app.command()(repair.repair)
    return app
