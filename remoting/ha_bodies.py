"""Bodies of the requests about replication: JSON, camelCase, PocketMQ's own.

Lives here: ``HaStatusBody`` and its parts, the answer to HA_STATUS; the numbers of promotions.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from pocketmq.remoting.bodies import Body, DataVersion

PROMOTION_STEP: Final = 1_000_000
"""A promotion opens the next multiple of it, a master that starts again counts on by one: so an old master cannot pass
the one that replaced it by starting often enough."""


MEMBERS_STEP: Final = 100
"""Within a promotion's numbers: a master that begins to count another slave opens the next multiple of it, one that
only starts again counts on by one. So the numbers of two epochs tell whether the same nodes may confirm in both; after
that many starts without a new slave they look different, and a promotion asks for more than it must."""


def next_members(highest_known: int) -> int:
    """Return the epoch that a master opens when the slaves that it counts change."""
    return (highest_known // MEMBERS_STEP + 1) * MEMBERS_STEP


def members_of(epoch: int) -> int:
    """Return which set of counted slaves an epoch has: of two sets of one broker name the newer one is higher.

    -1 of no epoch: who has none was in no set.
    """
    return epoch // MEMBERS_STEP if epoch else -1


def next_promotion(highest_known: int) -> int:
    """Return the epoch that a promotion opens when ``highest_known`` is the highest that anybody knows."""
    return (highest_known // PROMOTION_STEP + 1) * PROMOTION_STEP


PROMOTIONS_AHEAD_MAX: Final = 2
"""How many promotions a forced claim or a promise may be beyond the newest epoch that is known: one for the promotion,
one for a master that leads again after it failed. One number near the end of the range would else leave none for
anybody."""
EPOCH_UNKNOWN_MAX: Final = 1_000_000 * PROMOTION_STEP
"""The highest epoch that a name server takes without knowing the ones before it: it may be new, have lost its directory
or have been away for many promotions. Above it, room is left for billions of them."""
EPOCH_PROMISED_MAX: Final = 1 << 52
"""No node promises a higher one, whoever tells of it: so high no promotion of ours can be."""


def highest_allowed(highest_known: int) -> int:
    """Return the highest epoch that may be forced, or asked to be promised, where ``highest_known`` is known."""
    return (highest_known // PROMOTION_STEP + PROMOTIONS_AHEAD_MAX + 1) * PROMOTION_STEP - 1


def steps_to(epoch: int, highest_known: int) -> Iterator[int]:
    """Yield the epochs, ``epoch`` itself last, that one after the other may be asked for where ``highest_known`` is
    known: a node that was away for several promotions is led over them."""
    while epoch > highest_allowed(highest_known):
        highest_known = (highest_known // PROMOTION_STEP + PROMOTIONS_AHEAD_MAX) * PROMOTION_STEP
        yield highest_known
    yield epoch


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
