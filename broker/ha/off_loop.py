"""A blocking call outside the event loop.

Lives here: ``run_off_loop``.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from pocketmq.common.runner import LoopMailbox, Runner

ResultT = TypeVar("ResultT")


async def run_off_loop(runner: Runner, mailbox: LoopMailbox, name: str, call: Callable[[], ResultT]) -> ResultT:
    """Run ``call`` in a worker of its own; return its result or raise its error."""
    future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()

    def finish(result: ResultT | None, error: BaseException | None) -> None:
        if future.done():  # the waiter was cancelled
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def step() -> None:
        try:
            result = call()
        except BaseException as error:
            mailbox.post(finish, None, error)
        else:
            mailbox.post(finish, result, None)

    worker = runner.start(name, step)
    try:
        return await future
    finally:
        worker.stop(0.0)
