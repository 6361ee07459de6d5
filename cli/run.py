"""Runs the body of a command: the loop, interrupts, what a pipe that closed means.

Lives here: ``run_async``.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import typer

from pocketmq.cli.exit_codes import ExitCode
from pocketmq.cli.output import quiet_broken_pipe

T = TypeVar("T")


def run_async(body: Coroutine[Any, Any, T]) -> T | None:
    """Run ``body`` in a fresh loop; Ctrl-C cancels it and ends the command with 130, a closed pipe ends it quietly."""
    from pocketmq.remoting.loop import new_event_loop

    try:
        with quiet_broken_pipe(), asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(body)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    return None
