"""The watches of a dashboard: one for all visitors, or one for each user who has logged in.

Each user sees what the broker lets this user see, so users have no watch in common.

Lives here: ``Watches``.
"""

from typing import Final

from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.dashboard.options import DashboardOptions
from pocketmq.dashboard.watch.cluster_watch import ClusterWatch
from pocketmq.remoting.security.credentials import Credentials

USERS_MAX: Final = 32
"""Users with a watch at the same time."""


class TooManyUsers(PocketMQError):
    """As many users as the dashboard serves look at it now."""

    retriable = True
    default_cause = Cause.CONNECTION_LIMIT


class Watches:
    """Makes watches at the first use, and ends those that nobody looks at when their places are needed."""

    def __init__(self, options: DashboardOptions) -> None:
        self._options = options
        self._watches: dict[Credentials | None, ClusterWatch] = {}

    async def of(self, credentials: Credentials | None) -> ClusterWatch:
        """Return the watch of a user. Raises ``TooManyUsers``."""
        watch = self._watches.get(credentials)
        if watch is None:
            if len(self._watches) >= USERS_MAX:
                await self._make_room()
            watch = self._watches[credentials] = ClusterWatch(self._options, credentials)
        return watch

    async def forget(self, credentials: Credentials | None) -> None:
        """End the watch of a user, if there is one."""
        watch = self._watches.pop(credentials, None)
        if watch is not None:
            await watch.stop()

    async def stop(self) -> None:
        """End all watches."""
        for credentials in list(self._watches):
            await self.forget(credentials)

    async def _make_room(self) -> None:
        idle = next((key for key, watch in self._watches.items() if watch.is_idle), ...)
        if idle is ...:
            raise TooManyUsers("not shown", why=f"{USERS_MAX} users look at it", hint="try again in a minute")
        await self.forget(idle)
