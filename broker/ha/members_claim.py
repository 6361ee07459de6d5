"""Questions to the name servers about slaves, asked for a worker that waits for the answer.

Lives here: ``MembersClaim``: from a worker of the HA service to the loop and back.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, Protocol

from pocketmq.common.errors import PocketMQError
from pocketmq.common.runner import LoopMailbox, Supervisor

WAIT_S: Final = 4.0
"""Longer than connecting and one request take; a question without an answer by then means that the loop is stuck."""


class NameServers(Protocol):
    """What a registered broker asks its name servers. Loop thread."""

    async def claim_members(self, epoch: int, owner: str) -> str:
        """See ``Registration.claim_members``."""
        ...

    async def is_member(self, node_id: str, broker_id: int) -> str:
        """See ``Registration.is_member``."""
        ...


@dataclass(slots=True, eq=False)
class MembersClaim:
    """``claim`` and ``admit`` are called in a worker, as ``store.ha.members.ClaimEpoch`` and ``Admit``; they block."""

    mailbox: LoopMailbox
    supervisor: Supervisor
    name_servers: NameServers | None = None
    """Set in the loop's thread; None while the broker is not registered: everything is refused."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def claim(self, epoch: int, owner: str) -> str:
        """Claim an epoch; return "" or the reason for the refusal."""
        return self._ask(lambda name_servers: name_servers.claim_members(epoch, owner))

    def admit(self, node_id: str, broker_id: int) -> str:
        """Ask whether a slave is registered under this broker's name; return "" or the reason why not."""
        return self._ask(lambda name_servers: name_servers.is_member(node_id, broker_id))

    def _ask(self, call: Callable[[NameServers], Awaitable[str]]) -> str:
        answer: Future[str] = Future()
        self.mailbox.post(self._begin, call, answer)
        try:
            return answer.result(WAIT_S)
        except TimeoutError:
            return f"no name server answered within {WAIT_S:.0f} s"

    def _begin(self, call: Callable[[NameServers], Awaitable[str]], answer: "Future[str]") -> None:
        name_servers = self.name_servers
        if name_servers is None:
            answer.set_result("this broker is not registered yet, or is stopping")
            return

        async def ask() -> None:
            why = "the question was cancelled"
            try:
                async with asyncio.timeout(WAIT_S):
                    why = await call(name_servers)
            except (PocketMQError, TimeoutError) as error:
                why = str(error) or repr(error)
            finally:
                answer.set_result(why)

        task = asyncio.get_running_loop().create_task(ask(), name="ask-name-servers")
        self.supervisor.watch(task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
