"""What surrounds one side of replication: the store, its state, the group, clock, threads and log.

Lives here: ``HaEnvironment``, which a master's and a slave's side are built from.
"""

from dataclasses import dataclass

from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner
from pocketmq.store.ha.proved_transport import ClusterSecret
from pocketmq.store.ha.state import HaState
from pocketmq.store.ha.tls_transport import HaTls
from pocketmq.store.message_store import MessageStore


@dataclass(slots=True, frozen=True)
class HaEnvironment:
    """Shared by all parts of replication, changed by none. ``store.config`` has the role of this run; ``state`` is
    loaded; ``cluster`` and ``broker_name`` name the group.
    """

    store: MessageStore
    state: HaState
    cluster: str
    broker_name: str
    clock: Clock
    runner: Runner
    log: EventLog
    secret: ClusterSecret | None = None
    """What members prove to each other; None: anybody who reaches the port may follow the log."""
    tls: HaTls | None = None
    """None: connections are plain."""
