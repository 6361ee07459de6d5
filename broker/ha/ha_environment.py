"""The part of a broker's environment that replication uses.

Lives here: ``ReplicationEnvironment``, ``ChangeRole``.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import LoopMailbox, Runner, Supervisor
from pocketmq.remoting.security.client_security import ClientSecurity
from pocketmq.remoting.security.tls_files import TlsFiles
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.ha.proved_transport import ClusterSecret
from pocketmq.store.ha.slave import HaSlave

ChangeRole = Callable[[str, int, bool], None]
"""(role, broker id, accept loss): requests a change of the role, which begins after the answer is sent."""


@dataclass(slots=True, kw_only=True)
class ReplicationEnvironment:
    """Inputs of one run, and the tables that outlive it; ``assembly.environment`` adds those of the other packages."""

    topics: TopicTable
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    file_system: FileSystem
    runner: Runner
    mailbox: LoopMailbox
    clock: Clock
    supervisor: Supervisor
    logger: Callable[[str], EventLog]
    slave_type: type[HaSlave]
    cluster_secret: ClusterSecret | None
    """What members of the cluster prove to each other at the HA port; None: nothing."""
    security: ClientSecurity
    """How this broker connects to name servers and other brokers."""
    mirror_users: Callable[[bytes], None] | None
    """Takes a master's users and policies over; None: this broker knows none, or cannot prove itself to a master."""
    tls: TlsFiles
    """Loaded; for connections between the members of the cluster."""
    change_role: ChangeRole
    reopen: Callable[[], None]
    """Called, in any thread, when the store must be opened again."""
