"""Changes of the role: one at a time, and never during a start or a stop.

Lives here: ``RoleChanges``.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from pocketmq.broker.ha.ha_roles import SLAVE
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Supervisor
from pocketmq.store.ha.state import HaState

Restart = Callable[[Callable[[HaState], None] | None], Awaitable[None]]
"""Stops and starts the broker; its argument changes the state before the stop."""
ANSWER_S: Final = 0.05
"""Time to answer the request for a change before its connection closes."""


class BrokerNotRunning(PocketMQError):
    """The role of a broker that does not run cannot change."""

    default_cause = Cause.SHUTTING_DOWN


class RoleNotTaken(PocketMQError):
    """The broker could not start in its new role and has started in its old one again."""

    default_cause = Cause.BAD_REQUEST


@dataclass(slots=True, eq=False)
class RoleChanges:
    """Serializes start, stop and changes with ``lock``. Loop thread."""

    restart: Restart
    on_failed: Callable[[BaseException], None] | None
    log: EventLog
    supervisor: Supervisor
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _closed: bool = False
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def close(self) -> None:
        """Begin no further change; ``lock`` waits for one under way."""
        self._closed = True

    def begin(self, role: str, broker_id: int, accept_loss: bool) -> None:
        """Change the role soon."""
        self._spawn(self.change(role, broker_id, accept_loss=accept_loss, after_s=ANSWER_S), f"become {role}")

    def begin_reopen(self) -> None:
        """Stop and start in the same role soon: a slave's log must be cut, for which the store is opened again."""
        self._spawn(self._reopen(), "reopen")

    def _spawn(self, work: "Awaitable[None]", what: str) -> None:
        async def run() -> None:
            try:
                await work
            except Exception as error:
                self.log.error("role_change_failed", wanted=what, error=str(error) or repr(error))

        task = asyncio.get_running_loop().create_task(run(), name="role-change")
        self.supervisor.watch(task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reopen(self) -> None:
        async with self.lock:
            if not self._closed:
                await self._restarted(None)

    async def change(self, role: str, broker_id: int, *, accept_loss: bool = False, after_s: float = 0.0) -> None:
        """Change the role; see ``BrokerApp.change_role``."""
        await asyncio.sleep(after_s)

        def remember(state: HaState) -> None:
            state.set_role(role, broker_id)
            if accept_loss and role == SLAVE:
                state.order_accept_loss()

        async with self.lock:
            if self._closed:
                raise BrokerNotRunning("role not changed", why="the broker is stopping")
            self.log.warning("role_changes", role=role, broker_id=broker_id)
            await self._restarted(remember)
            self.log.warning("role_changed", role=role, broker_id=broker_id)

    def log_not_taken(self, role: str, old_role: str, error: Exception) -> None:
        """Log that the start in the new role failed and that the old one is tried, once."""
        self.log.error(
            "role_not_taken",
            role=role,
            old_role=old_role or "that of the settings",
            error=str(error) or repr(error),
            what_to_do="it starts in its old role, once; if that fails too the process ends",
        )

    async def _restarted(self, remember: Callable[[HaState], None] | None) -> None:
        """Restart; report a broker that does not come back to ``on_failed``."""
        try:
            await self.restart(remember)
        except RoleNotTaken:
            raise  # it serves in its old role
        except Exception as error:
            self.log.error("broker_does_not_come_back", error=str(error) or repr(error))
            if self.on_failed is not None:
                self.on_failed(error)
            raise
