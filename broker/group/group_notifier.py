"""Notifies the members of a consumer group that the group changed, or that its offsets were reset.

Lives here: ``GroupNotifier``.
"""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass

from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.common.runner import LoopMailbox
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.client import ConsumerGroupRequestHeader
from pocketmq.remoting.protocol.spec import Header
from pocketmq.remoting.server import Connection


@dataclass(slots=True, eq=False)
class GroupNotifier:
    """Sends oneway requests to connected clients; callable from any thread."""

    clients: ClientTable[Connection]
    groups: SubscriptionGroups
    mailbox: LoopMailbox
    _: KW_ONLY
    enabled: bool

    def members_changed(self, groups: Iterable[str]) -> None:
        """Send NOTIFY_CONSUMER_IDS_CHANGED to every member of each group, unless the settings disable it."""
        if not self.enabled:
            return
        for name in groups:
            config = self.groups.get(name)
            if config is None or config.notify_consumer_ids_changed_enable:
                self.send(name, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupRequestHeader(name), b"")

    def send(self, group: str, code: int, header: Header, body: bytes) -> int:
        """Send a oneway request to every member of a group; return how many there are."""
        known = self.clients.consumer_group(group)
        connections = [] if known is None else list(known.clients)
        if connections:
            self.mailbox.post(_send_all, connections, code, header, body)
        return len(connections)


def _send_all(connections: list[Connection], code: int, header: Header, body: bytes) -> None:
    for connection in connections:
        if not connection.closed:
            connection.send_oneway(code, header, body)
