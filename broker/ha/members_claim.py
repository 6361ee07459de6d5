"""A claim at the name servers that a worker waits for.

Lives here: ``MembersClaim``: from a worker of the HA service to the loop and back.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Final

from pocketmq.common.errors import PocketMQError
from pocketmq.common.runner import LoopMailbox
from pocketmq.common.supervised import Supervisor

WAIT_S: Final = 4.0
"""Longer than connecting and one request take; after that the loop itself is stuck."""

ClaimMembers = Callable[[int, str], Awaitable[str]]
"""(epoch, owner): see ``Registration.claim_members``. Loop thread."""


class MembersClaim:
    """Called in a worker with (epoch, owner), as ``store.ha.members.ClaimEpoch``. ``use``: loop thread."""

    def __init__(self, mailbox: LoopMailbox, supervisor: Supervisor) -> None:
        self._mailbox = mailbox
        self._supervisor = supervisor
        self._claim: ClaimMembers | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def use(self, claim: ClaimMembers | None) -> None:
        """Claim with ``claim`` from now on; None: refuse, because the broker is not registered yet, or any more."""
        self._claim = claim

    def __call__(self, epoch: int, owner: str) -> str:
        """Claim, and wait for the answer: "" or why not. Blocks; not in the loop."""
        answer: Future[str] = Future()
        self._mailbox.post(self._begin, epoch, owner, answer)
        try:
            return answer.result(WAIT_S)
        except TimeoutError:
            return f"no name server answered within {WAIT_S:.0f} s"

    def _begin(self, epoch: int, owner: str, answer: "Future[str]") -> None:
        claim = self._claim
        if claim is None:
            answer.set_result("this broker is not registered yet, or stops")
            return

        async def ask() -> None:
            why = "the claim was cancelled"
            try:
                async with asyncio.timeout(WAIT_S):
                    why = await claim(epoch, owner)
            except (PocketMQError, TimeoutError) as error:
                why = str(error) or repr(error)
            finally:
                answer.set_result(why)

        task = asyncio.get_running_loop().create_task(ask(), name="claim-members")
        self._supervisor.watch(task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
