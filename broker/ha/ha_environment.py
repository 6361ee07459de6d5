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
from pocketmq.store.disk.file_system import FileSystem
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
    change_role: ChangeRole
    reopen: Callable[[], None]
    """Called, in any thread, when the store must be opened again."""
