"""What a broker is given from outside, and what its work beside requests looks like.

Lives here: ``BrokerEnvironment``, ``BrokerService``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.flow_control.refusal_stats import RefusalStats
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.ha.ha_admin import ChangeRole
from pocketmq.broker.metrics.observation import Observation
from pocketmq.broker.metrics.thread_dump import ThreadDumper
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner
from pocketmq.common.supervised import Supervisor
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.ha.state import HaState
from pocketmq.store.message_store import MessageStore


class BrokerService(Protocol):
    """Work of a broker beside its requests, with threads of its own."""

    def open(self) -> None:
        """Load what it needs. Blocks; worker thread, the store is open, nothing is served yet."""

    def start(self, runner: Runner) -> None:
        """Begin; loop thread."""

    def stop(self) -> None:
        """End, write down what must be kept. Blocks; worker thread, the store is still open; may come without
        ``start``."""


@dataclass(slots=True, kw_only=True)
class BrokerEnvironment:
    """What a broker is given, and the tables that outlive a run."""

    config: BrokerConfig
    store_config: StoreConfig
    given_store: MessageStore | None
    file_system: FileSystem
    clock: Clock
    runner: Runner
    logger: Callable[[str], EventLog]
    memory_bytes: int
    store_host: bytes
    """What stands in records; known when the port is."""
    family: int
    counters: BrokerCounters
    topics: TopicTable
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    refusals: RefusalStats
    refused_requests: RefusedRequests
    thread_dumper: ThreadDumper
    observation: Observation
    ha_state: HaState
    """Loaded; ``config`` and ``store_config`` have the role that it gave."""
    change_role: ChangeRole
    role_changed: Callable[[], None]
    """Called, in any thread, when name servers shall learn of a change of this broker's role or claim."""
    supervisor: Supervisor
    reopen: Callable[[], None]
    """Called, in any thread, when the store must be opened anew."""
