"""Bodies of the requests about replication: JSON, camelCase, PocketMQ's own.

Lives here: ``HaStatusBody`` and its parts, the answer to HA_STATUS.
"""

import msgspec

from pocketmq.remoting.bodies import Body, DataVersion


class HaEpochBody(Body):
    """From ``start_offset`` (physical, bytes) on ``owner`` wrote the log."""

    number: int
    owner: str
    start_offset: int


class HaSlaveBody(Body):
    """One slave as its master sees it. ``protocol`` is ``pocketmq`` or ``rocketmq``."""

    node_id: str = ""
    broker_id: int = -1
    address: str = ""
    ack_offset: int = 0
    behind_bytes: int = 0
    behind_ms: int = 0
    is_in_sync: bool = False
    connected_ms: int = 0
    sent_bytes: int = 0
    protocol: str = "pocketmq"


class HaStatusBody(Body):
    """One broker of a replicated name. Offsets are physical, bytes; ``role`` is what it is now.

    ``epoch`` and ``owner``: a master's own, or those that a slave follows. ``fenced_by_epoch`` 0: it is not fenced.
    ``*_version`` and ``offsets_generation``: what a slave asks before it fetches the tables.
    """

    cluster: str = ""
    broker_name: str = ""
    broker_id: int = 0
    address: str = ""
    ha_address: str = ""
    role: str = ""
    group_role: str = ""
    """What the master of this name is or was: SYNC_MASTER or ASYNC_MASTER; empty: not known here."""
    node_id: str = ""
    epoch: int = 0
    owner: str = ""
    epochs: list[HaEpochBody] = []
    promised_epoch: int = 0
    promised_owner: str = ""
    min_offset: int = 0
    end_offset: int = 0
    flushed_offset: int = 0
    dispatched_offset: int = 0
    confirmed_offset: int = 0
    in_sync_replicas: int = 1
    total_replicas: int = 1
    fenced_by_epoch: int = 0
    fenced_by_owner: str = ""
    fenced_by_address: str = ""
    waiters: int = 0
    slaves: list[HaSlaveBody] = []
    master_address: str = ""
    is_connected: bool = False
    master_end_offset: int = 0
    behind_bytes: int = 0
    behind_ms: int = 0
    last_error: str = ""
    is_counted: bool = True
    """Of a slave: False while its master does not count its acknowledgements, so that it must not be promoted."""
    topics_version: DataVersion = msgspec.field(default_factory=DataVersion)
    groups_version: DataVersion = msgspec.field(default_factory=DataVersion)
    offsets_generation: int = 0

    @property
    def last_epoch(self) -> int:
        """The newest epoch in this node's log, 0 without one; 0 too of a slave that is not counted."""
        return self.epochs[-1].number if self.epochs and self.is_counted else 0

    @property
    def is_master(self) -> bool:
        """Whether it leads: no slave, and not fenced."""
        return self.role in ("SYNC_MASTER", "ASYNC_MASTER") and not self.fenced_by_epoch

    @property
    def is_fenced(self) -> bool:
        """Whether another master has replaced it."""
        return self.fenced_by_epoch > 0
