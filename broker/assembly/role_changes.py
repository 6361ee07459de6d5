"""One change of the role at a time, and never beside a start or a stop.

Lives here: ``RoleChanges``.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from pocketmq.broker.ha.ha_roles import SLAVE
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.supervised import Supervisor
from pocketmq.store.ha.state import HaState

Restart = Callable[[Callable[[HaState], None] | None], Awaitable[None]]
"""Stops and starts the broker; its argument is told to the state before the stop."""
ANSWER_S: Final = 0.05
"""The request that wants a change is answered before its connection goes."""


class BrokerNotRunning(PocketMQError):
    """A broker that does not run has no role to change."""

    default_cause = Cause.SHUTTING_DOWN


class RoleNotTaken(PocketMQError):
    """A broker could not start in its new role, and has started again in its old one."""

    default_cause = Cause.BAD_REQUEST


class RoleChanges:
    """Serializes start, stop and changes with ``lock``. Loop thread."""

    def __init__(
        self,
        restart: Restart,
        on_failed: Callable[[BaseException], None] | None,
        log: EventLog,
        supervisor: Supervisor,
    ) -> None:
        self.lock = asyncio.Lock()
        self._restart = restart
        self._on_failed = on_failed
        self._log = log
        self._supervisor = supervisor
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Begin no change any more; one under way is waited for through ``lock``."""
        self._closed = True

    def begin(self, role: str, broker_id: int, accept_loss: bool) -> None:
        """Change the role soon."""
        self._spawn(self.change(role, broker_id, accept_loss=accept_loss, after_s=ANSWER_S), f"become {role}")

    def begin_reopen(self) -> None:
        """Stop and start in the same role soon: a slave's log must be cut, which takes a new start of the store."""
        self._spawn(self._reopen(), "reopen")

    def _spawn(self, work: "Awaitable[None]", what: str) -> None:
        async def run() -> None:
            try:
                await work
            except Exception as error:
                self._log.error("role_change_failed", wanted=what, error=str(error) or repr(error))

        task = asyncio.get_running_loop().create_task(run(), name="role-change")
        self._supervisor.watch(task)
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
                raise BrokerNotRunning("role not changed", why="the broker stops")
            self._log.warning("role_changes", role=role, broker_id=broker_id)
            await self._restarted(remember)
            self._log.warning("role_changed", role=role, broker_id=broker_id)

    def tell_not_taken(self, role: str, old_role: str, error: Exception) -> None:
        """Say that the new role could not be taken, and that the old one is tried, once."""
        self._log.error(
            "role_not_taken",
            role=role,
            old_role=old_role or "that of the settings",
            error=str(error) or repr(error),
            what_to_do="it is started in its old role, once; when that fails too the process ends",
        )

    async def _restarted(self, remember: Callable[[HaState], None] | None) -> None:
        """Restart; whoever owns the broker hears of one that does not come back."""
        try:
            await self._restart(remember)
        except RoleNotTaken:
            raise  # it serves
        except Exception as error:
            self._log.error("broker_does_not_come_back", error=str(error) or repr(error))
            if self._on_failed is not None:
                self._on_failed(error)
            raise
