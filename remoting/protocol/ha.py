"""Replication and promotion: PocketMQ's own requests, and those of RocketMQ's tools about replicas.

Bodies: PocketMQ's own; ``HaRuntimeBody`` and ``EpochCacheBody`` are RocketMQ 5.3.3's.

Access, our decision after RocketMQ's 9xx and 10xx (``ExchangeHAInfoRequestHeader`` and others: Update on the cluster):
reads (907, 1007, HA_STATUS) need Get on the cluster, changes of a role or an epoch need Update. HA_EPOCH may do
either, so it needs Update.
"""

from typing import Final

import msgspec

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import GET_CLUSTER, UPDATE_CLUSTER
from pocketmq.remoting.protocol.body import Body, DataVersion
from pocketmq.remoting.protocol.spec import Header, Int, Long, Pool, Spec


class HaPromiseRequestHeader(Header, frozen=True):
    """HA_PROMISE: ``owner`` names the promotion that asks, ``address`` the future master, if known."""

    broker_name: str
    epoch: Long
    owner: str
    address: str = ""


class HaPromiseResponseHeader(Header, frozen=True):
    """``granted`` False: an earlier promise or the node's own epoch is in the way. ``end_offset`` is the present end
    of the node's log; after a granted promise only its old epoch's master, if any, can extend it."""

    granted: bool
    epoch: Long
    owner: str
    last_epoch: Long
    end_offset: Long


class HaPromoteRequestHeader(Header, frozen=True):
    """HA_PROMOTE: ``role`` is what the broker becomes: SYNC_MASTER or ASYNC_MASTER."""

    broker_name: str
    epoch: Long
    owner: str
    role: str
    force: bool = False


class HaDemoteRequestHeader(Header, frozen=True):
    """HA_DEMOTE: ``accept_loss`` lets the slave cut, this once, records that its master never confirmed."""

    broker_name: str
    broker_id: Long
    accept_loss: bool = False
    force: bool = False


class HaHoldRequestHeader(Header, frozen=True):
    """HA_HOLD: for how long, in ms; 0 ends a hold."""

    broker_name: str
    hold_ms: Int


class HaHoldResponseHeader(Header, frozen=True):
    """The present end of the log."""

    end_offset: Long


class HaEpochRequestHeader(Header, frozen=True):
    """HA_EPOCH: ``epoch`` 0 reads, else claims it for ``owner`` at ``address``; ``force`` lets a node follow another
    one without the number of a promotion. ``last_epoch`` is the newest in the log of a node that shall be promoted.
    ``forget`` with ``epoch`` 0 removes the record of a name that no broker has registered; older versions read it."""

    broker_name: str
    epoch: Long = 0
    owner: str = ""
    address: str = ""
    role: str = ""
    force: bool = False
    last_epoch: Long = 0
    forget: bool = False


class HaEpochResponseHeader(Header, frozen=True):
    """``granted`` is True for a claim that holds; the rest is the name server's record now, ``epoch`` 0: none."""

    granted: bool
    epoch: Long = 0
    owner: str = ""
    address: str = ""
    role: str = ""
    fenced: str = ""
    """Addresses of masters that were refused since this epoch began, comma-joined."""
    is_kept: bool = True
    """Whether the name server remembers epochs over its own restart."""


class HaEpochBody(Body):
    """``owner`` wrote the log from ``start_offset`` (physical, bytes) on."""

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
    ``*_version`` and ``offsets_generation``: a slave compares them before it fetches the tables.
    """

    cluster: str = ""
    broker_name: str = ""
    broker_id: int = 0
    address: str = ""
    ha_address: str = ""
    role: str = ""
    group_role: str = ""
    """The role that the master of this name has or had: SYNC_MASTER or ASYNC_MASTER; empty: not known here."""
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
    followers: list[str] = []
    """Node ids of the slaves that this master has counted, present or not: one of them may take its place."""
    master_address: str = ""
    is_connected: bool = False
    master_end_offset: int = 0
    behind_bytes: int = 0
    behind_ms: int = 0
    last_error: str = ""
    disk_error: str = ""
    """Why a slave's own disk takes no bytes; empty: it takes them, or this version does not say."""
    is_counted: bool = True
    """Of a slave: False while its master does not count its acknowledgements, so that it must not be promoted."""
    topics_version: DataVersion = msgspec.field(default_factory=DataVersion)
    groups_version: DataVersion = msgspec.field(default_factory=DataVersion)
    offsets_generation: int = 0

    @property
    def last_epoch(self) -> int:
        """The newest epoch in this node's log; 0 without one, and for a slave that is not counted."""
        return self.epochs[-1].number if self.epochs and self.is_counted else 0

    @property
    def is_master(self) -> bool:
        """Whether it leads: it is not a slave, and not fenced."""
        return self.role in ("SYNC_MASTER", "ASYNC_MASTER") and not self.fenced_by_epoch

    @property
    def is_fenced(self) -> bool:
        """Whether another master has replaced it."""
        return self.fenced_by_epoch > 0


class HaConnectionBody(Body):
    """One slave of a master (5.3); offsets are physical, ``diff`` in bytes."""

    addr: str = ""
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


class HaClientBody(Body):
    """A slave's own view (5.3); offsets are physical, times in ms since 1970, 0 if unknown."""

    master_addr: str = ""
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0
    activated: bool = False


class HaRuntimeBody(Body):
    """GET_BROKER_HA_STATUS (5.3)."""

    master: bool = True
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HaConnectionBody] = []
    ha_client_runtime_info: HaClientBody = msgspec.field(default_factory=HaClientBody)


class EpochEntryBody(Body):
    """One epoch of a log (5.3); offsets are physical, ``end_offset`` is where the next one begins."""

    epoch: int
    start_offset: int
    end_offset: int


class EpochCacheBody(Body):
    """GET_BROKER_EPOCH_CACHE (5.3)."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: int = 0
    epoch_list: list[EpochEntryBody] = []
    max_offset: int = 0


_R = RequestCode
SPECS: Final = (
    Spec(_R.GET_BROKER_HA_STATUS, Pool.STATUS, GET_CLUSTER, answer=HaRuntimeBody),
    Spec(_R.GET_BROKER_EPOCH_CACHE, Pool.STATUS, GET_CLUSTER, answer=EpochCacheBody),
    Spec(_R.HA_STATUS, Pool.STATUS, GET_CLUSTER, answer=HaStatusBody),
    Spec(_R.HA_PROMISE, Pool.ADMIN, UPDATE_CLUSTER, HaPromiseRequestHeader, HaPromiseResponseHeader),
    Spec(_R.HA_PROMOTE, Pool.ADMIN, UPDATE_CLUSTER, HaPromoteRequestHeader),
    Spec(_R.HA_DEMOTE, Pool.ADMIN, UPDATE_CLUSTER, HaDemoteRequestHeader),
    Spec(_R.HA_HOLD, Pool.ADMIN, UPDATE_CLUSTER, HaHoldRequestHeader, HaHoldResponseHeader),
    Spec(_R.HA_EPOCH, Pool.NAME_SERVER, UPDATE_CLUSTER, HaEpochRequestHeader, HaEpochResponseHeader),
)
