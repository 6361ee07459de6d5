"""The inputs of one run of a broker, and the protocol of its background services.

Lives here: ``BrokerEnvironment``, ``BrokerService``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pocketmq.auth.server_auth import ServerAuth
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.flow_control.refusal_stats import RefusalStats
from pocketmq.broker.ha.ha_environment import ReplicationEnvironment
from pocketmq.broker.metrics.observation import Observation
from pocketmq.broker.metrics.thread_dump import ThreadDumper
from pocketmq.broker.settings.live_settings import Change, LiveSettings
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.common.runner import Runner
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.store.config import StoreConfig
from pocketmq.store.ha.state import HaState
from pocketmq.store.message_store import MessageStore


class BrokerService(Protocol):
    """Background work of a broker, in threads of its own."""

    def open(self) -> None:
        """Load its state. Blocks; worker thread; the store is open, requests are not served yet."""

    def start(self, runner: Runner) -> None:
        """Begin; loop thread."""

    def stop(self) -> None:
        """Stop, and write the state to keep. Blocks; worker thread; the store is still open. Also without ``start``."""


@dataclass(slots=True, kw_only=True)
class BrokerEnvironment(ReplicationEnvironment):
    """The inputs of one run, and the tables that outlive it."""

    config: BrokerConfig
    store_config: StoreConfig
    given_store: MessageStore | None
    memory_bytes: int
    store_host: bytes
    """The store host of records; known once the port is."""
    family: int
    counters: BrokerCounters
    refusals: RefusalStats
    refused_requests: RefusedRequests
    thread_dumper: ThreadDumper
    observation: Observation
    auth: ServerAuth
    """Users and policies; no guard where nothing is checked."""
    ha_state: HaState
    """Loaded; ``config`` and ``store_config`` have its role."""
    live: LiveSettings
    settings_changed: Callable[[Sequence[Change]], None]
    """Lets changed settings take effect, and writes them down. Blocks."""
    role_changed: Callable[[], None]
    """Called, in any thread, when this broker's role or claim has changed and name servers must learn it."""
