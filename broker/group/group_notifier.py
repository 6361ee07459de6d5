"""Tells the members of a consumer group that the group changed, or that its offsets were reset.

Lives here: ``GroupNotifier``.
"""

from collections.abc import Iterable

from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.common.runner import LoopMailbox
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.client import ConsumerGroupRequestHeader
from pocketmq.remoting.protocol.spec import Header
from pocketmq.remoting.server import Connection


class GroupNotifier:
    """Sends oneway requests to clients; callable from any thread. Who is not there any more is not told."""

    def __init__(
        self, clients: ClientTable[Connection], groups: SubscriptionGroups, mailbox: LoopMailbox, *, enabled: bool
    ) -> None:
        self._clients = clients
        self._groups = groups
        self._mailbox = mailbox
        self._enabled = enabled

    def members_changed(self, groups: Iterable[str]) -> None:
        """Send NOTIFY_CONSUMER_IDS_CHANGED to every member of each group, unless the settings say no."""
        if not self._enabled:
            return
        for name in groups:
            config = self._groups.get(name)
            if config is None or config.notify_consumer_ids_changed_enable:
                self.send(name, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupRequestHeader(name), b"")

    def send(self, group: str, code: int, header: Header, body: bytes) -> int:
        """Send a oneway request to every member of a group; return how many there are."""
        known = self._clients.consumer_group(group)
        connections = [] if known is None else list(known.clients)
        if connections:
            self._mailbox.post(_send_all, connections, code, header, body)
        return len(connections)


def _send_all(connections: list[Connection], code: int, header: Header, body: bytes) -> None:
    for connection in connections:
        if not connection.closed:
            connection.send_oneway(code, header, body)
