"""A claim at the name servers, made for a worker that waits for the result.

Lives here: ``MembersClaim``: from a worker of the HA service to the loop and back.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from pocketmq.common.errors import PocketMQError
from pocketmq.common.runner import LoopMailbox, Supervisor

WAIT_S: Final = 4.0
"""Longer than connecting and one request take; a claim without an answer by then means that the loop is stuck."""

ClaimMembers = Callable[[int, str], Awaitable[str]]
"""(epoch, owner): see ``Registration.claim_members``. Loop thread."""


@dataclass(slots=True, eq=False)
class MembersClaim:
    """Called in a worker with (epoch, owner), as ``store.ha.members.ClaimEpoch``."""

    mailbox: LoopMailbox
    supervisor: Supervisor
    claim: ClaimMembers | None = None
    """Set in the loop's thread; None while the broker is not registered: claims are refused."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __call__(self, epoch: int, owner: str) -> str:
        """Claim, and return "" or the reason for the refusal. Blocks; not in the loop."""
        answer: Future[str] = Future()
        self.mailbox.post(self._begin, epoch, owner, answer)
        try:
            return answer.result(WAIT_S)
        except TimeoutError:
            return f"no name server answered within {WAIT_S:.0f} s"

    def _begin(self, epoch: int, owner: str, answer: "Future[str]") -> None:
        claim = self.claim
        if claim is None:
            answer.set_result("this broker is not registered yet, or is stopping")
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
        self.supervisor.watch(task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
