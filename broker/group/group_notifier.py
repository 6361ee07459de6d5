"""Notifies the members of a consumer group that the group changed, or that its offsets were reset.

The first change of a group is announced at once; changes that follow within 200 ms share one notice. Without that,
3,000 clients that join one group would cause 4.5 million notices, and as many requests for the list of members.

Lives here: ``GroupNotifier``.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.common.bounds import bounded
from pocketmq.common.runner import LoopMailbox
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.client import ConsumerGroupRequestHeader
from pocketmq.remoting.protocol.spec import Header
from pocketmq.remoting.server import Connection

NOTICE_S: Final = 0.2
"""Least time between two notices of one group."""
TURN_MEMBERS: Final = 256
"""Members notified in one turn of the loop: about 2 ms."""


@bounded("groups with notices", limit="groups_max", size="groups_quiet", entry_bytes=1024)
@dataclass(slots=True, eq=False)
class GroupNotifier:
    """Sends oneway requests to connected clients; callable from any thread, but for ``groups_quiet``."""

    clients: ClientTable[Connection]
    groups: SubscriptionGroups
    mailbox: LoopMailbox
    loop: asyncio.AbstractEventLoop
    _: KW_ONLY
    enabled: bool
    _quiet: dict[str, bool] = field(init=False, default_factory=dict)
    """Group whose last notice is younger than 200 ms → whether it has changed since. Loop thread."""

    @property
    def groups_max(self) -> int:
        """Groups with members, each of which may have sent a notice."""
        return self.clients.entries_max

    @property
    def groups_quiet(self) -> int:
        """Groups whose next notice must wait."""
        return len(self._quiet)

    def members_changed(self, groups: Iterable[str]) -> None:
        """Send NOTIFY_CONSUMER_IDS_CHANGED to every member of each group, at once or 200 ms after the last notice,
        unless the settings disable it."""
        names = list(groups) if self.enabled else []
        if names:
            self.mailbox.post(self._changed, names)

    def send(self, group: str, code: int, header: Header, body: bytes) -> int:
        """Send a oneway request to every member of a group; return how many there are."""
        known = self.clients.consumer_group(group)
        connections = [] if known is None else list(known.clients)
        if connections:
            self.mailbox.post(self._send_all, connections, code, header, body)
        return len(connections)

    def _changed(self, names: list[str]) -> None:
        for name in names:
            config = self.groups.get(name)
            if config is not None and not config.notify_consumer_ids_changed_enable:
                continue
            if name in self._quiet:
                self._quiet[name] = True
            else:
                self._notify(name)

    def _notify(self, name: str) -> None:
        if self.send(name, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupRequestHeader(name), b""):
            self._quiet[name] = False
            self.loop.call_later(NOTICE_S, self._quiet_is_over, name)

    def _quiet_is_over(self, name: str) -> None:
        if self._quiet.pop(name):
            self._notify(name)

    def _send_all(self, connections: list[Connection], code: int, header: Header, body: bytes) -> None:
        for connection in connections[:TURN_MEMBERS]:
            if not connection.closed:
                connection.send_oneway(code, header, body)
        if len(connections) > TURN_MEMBERS:
            self.loop.call_soon(self._send_all, connections[TURN_MEMBERS:], code, header, body)
