"""Runs the body of a command: event loop, interrupts, closed pipes; builds groups of subcommands.

Lives here: ``run_async``, ``run_admin``, ``build_group``, ``confirm``.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from pocketmq.cli.connection import given
from pocketmq.cli.exit_codes import ExitCode
from pocketmq.cli.output import quiet_broken_pipe
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin

T = TypeVar("T")


def run_async(body: Coroutine[Any, Any, T]) -> T | None:
    """Run ``body`` in a new loop; Ctrl-C cancels it and ends the command with 130, a closed pipe ends it quietly."""
    from pocketmq.remoting.loop import new_event_loop

    try:
        with quiet_broken_pipe(), asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(body)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    return None


def run_admin(namesrv: str, body: Callable[["Admin"], Coroutine[Any, Any, None]]) -> None:
    """Run ``body`` as ``run_async`` does, with an ``Admin`` of the cluster behind these name servers."""

    async def connected() -> None:
        from pocketmq.client.admin.admin import Admin

        async with Admin(namesrv, **given()) as admin:
            await body(admin)

    run_async(connected())


def confirm(question: str, yes: bool, *, else_what: str) -> None:
    """Ask before a change that cannot be undone, and end the command if the answer is no.

    ``yes``: do not ask. Without a terminal there is no one to ask: raise ``ConfigError``, which says ``else_what``.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(else_what, why="there is no terminal to ask for confirmation", hint="scripts say --yes")
    typer.confirm(question, abort=True)


def build_group(help_text: str, **commands: Callable[..., None]) -> typer.Typer:
    """Return a group of subcommands; ``accept_loss`` is named ``accept-loss``."""
    app = typer.Typer(help=help_text, no_args_is_help=True)
    for name, command in commands.items():
        app.command(name.replace("_", "-"))(command)
    return app
