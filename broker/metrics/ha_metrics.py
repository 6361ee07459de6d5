"""The metrics of replication, one row each, and its entries in ``/health`` and in the runtime table.

Lives here: the groups of ``REPLICATION``; ``ha_runtime_info`` for the texts of the runtime table; ``ha_health``.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from pocketmq.broker.ha.ha_node import HaNode
from pocketmq.broker.ha.ha_roles import SLAVE
from pocketmq.broker.metrics.registry import Counter, Find, Gauge, Group, Row, S, Unit, only
from pocketmq.broker.metrics.sources import Reading
from pocketmq.remoting.protocol.ha import HaSlaveBody, HaStatusBody
from pocketmq.store.ha.status import HaStatus

SYNC_MASTER = "SYNC_MASTER"


def _in_sync(status: HaStatusBody) -> int:
    """Return how many copies are in sync, the master's included."""
    return 1 + sum(slave.is_in_sync for slave in status.slaves)


def _needed(status: HaStatusBody) -> int:
    return status.in_sync_replicas if status.role == SYNC_MASTER else 1


def _role(status: HaStatusBody) -> str:
    return "FENCED" if status.is_fenced else status.role


def _status(wanted: Callable[[str], bool] = lambda role: True) -> Find[HaStatusBody]:
    """Return what finds the status of a node whose role is ``wanted``."""
    return only(
        lambda reading: (
            None
            if reading.replication is None or not wanted(reading.replication.status.role)
            else reading.replication.status
        )
    )


def _slaves(reading: Reading) -> Iterable[tuple[tuple[str, str], HaSlaveBody]]:
    replication = reading.replication
    slaves = [] if replication is None else replication.status.slaves
    return [((slave.node_id or slave.address, str(slave.broker_id)), slave) for slave in slaves]


def _of(side: str, *rows: Row[S]) -> tuple[Row[S], ...]:
    """Return ``rows``, whose descriptions in docs/metrics.md begin with the side that has them."""
    return tuple(
        replace(row, note=f"{side}: {row.note or row.help[0].lower() + row.help[1:].removesuffix('.')}") for row in rows
    )


NODE: Final[Group[HaStatusBody]] = Group(
    _status(),
    (
        Gauge(
            "ha_role",
            "1 for the role of this broker.",
            lambda status: [((_role(status),), 1)],
            labels=("role",),
            note="1 for SYNC_MASTER, ASYNC_MASTER, SLAVE or FENCED, see [replication.md](replication.md)",
        ),
        Gauge("ha_epoch", "Newest epoch of the log.", lambda status: status.last_epoch, runtime="haEpoch"),
        Gauge(
            "ha_fenced",
            "1 once another master has replaced this one.",
            lambda status: status.is_fenced,
            Unit.FLAG,
            note="1 once another master has replaced this one: sends are refused",
        ),
        Gauge(
            "ha_confirmed_offset",
            "End of the log that enough copies have.",
            lambda status: status.confirmed_offset,
            runtime="haConfirmedOffset",
        ),
    ),
)
MASTER: Final[Group[HaStatusBody]] = Group(
    _status(lambda role: role != SLAVE),
    _of(
        "master",
        Gauge(
            "ha_in_sync_copies",
            "Copies in sync, the master's included.",
            _in_sync,
            runtime="haInSyncCopies",
            interval="copies_in_sync",
        ),
        Gauge(
            "ha_in_sync_copies_needed",
            "Copies that SEND_OK waits for.",
            _needed,
            note="copies that SEND_OK waits for; more than in sync means SLAVE_NOT_AVAILABLE",
            runtime="haInSyncCopiesNeeded",
            interval="copies_needed",
        ),
        Gauge(
            "ha_waiters", "Drains of sends that wait for slaves.", lambda status: status.waiters, runtime="haWaiters"
        ),
        Gauge("", "Connected slaves.", lambda status: len(status.slaves), runtime="haSlaves", interval="slaves"),
        Gauge(
            "",
            "Bytes that the slave furthest behind lacks.",
            lambda status: max((slave.behind_bytes for slave in status.slaves), default=0),
            Unit.BYTES,
            runtime="haSlaveBehindBytesMax",
            interval="slave_behind_bytes_max",
        ),
        Gauge(
            "",
            "How old the newest data of the slave furthest behind is.",
            lambda status: max((slave.behind_ms for slave in status.slaves), default=0),
            Unit.MS,
            interval="slave_behind_ms_max",
        ),
    ),
)
SLAVES: Final[Group[HaSlaveBody]] = Group(
    _slaves,
    _of(
        "master",
        Gauge("ha_slave_behind_bytes", "Bytes that a slave has not confirmed yet.", lambda slave: slave.behind_bytes),
        Gauge(
            "ha_slave_behind_seconds",
            "Age of the data that a slave has confirmed, -1 if unknown.",
            lambda slave: slave.behind_ms,
        ),
        Gauge(
            "ha_slave_in_sync",
            "1 while its confirmations count for SEND_OK.",
            lambda slave: slave.is_in_sync,
            Unit.FLAG,
        ),
        Gauge("ha_slave_sent_bytes", "Bytes of the log sent on its connection.", lambda slave: slave.sent_bytes),
    ),
    labels=("slave", "broker_id"),
)
SERVICE: Final[Group[HaStatus]] = Group(
    only(lambda reading: None if reading.replication is None else reading.replication.service),
    _of(
        "master",
        Counter("ha_waits_served", "Waits for slaves that ended with a confirmation.", lambda service: service.served),
        Counter(
            "ha_waits_timed_out",
            "Waits answered FLUSH_SLAVE_TIMEOUT.",
            lambda service: service.timeouts,
            runtime="haSlaveTimeouts",
            interval="slave_timeouts",
        ),
        Counter(
            "ha_slave_not_available",
            "Sends answered SLAVE_NOT_AVAILABLE at once.",
            lambda service: service.not_available,
            runtime="haSlaveNotAvailable",
            interval="slave_not_available",
        ),
        Counter(
            "ha_connections_refused",
            "Connections refused on the HA port, of slaves and of others.",
            lambda service: service.refused,
        ),
    ),
)
SLAVE_SIDE: Final[Group[HaStatusBody]] = Group(
    _status(lambda role: role == SLAVE),
    _of(
        "slave",
        Gauge(
            "ha_connected",
            "1 while this slave follows its master.",
            lambda status: status.is_connected,
            Unit.FLAG,
            runtime="haConnected",
            interval="slave_connected",
        ),
        Gauge(
            "ha_behind_bytes",
            "Bytes of its master's log that this slave lacks.",
            lambda status: status.behind_bytes,
            runtime="haBehindBytes",
            interval="behind_bytes",
        ),
        Gauge(
            "ha_behind_seconds",
            "Age of this slave's newest data, -1 if unknown.",
            lambda status: status.behind_ms,
            interval="behind_ms",
        ),
    ),
)
REPLICATION: Final = (NODE, MASTER, SLAVES, SERVICE, SLAVE_SIDE)
"""In the order of the documentation."""


def ha_runtime_info(reading: Reading) -> dict[str, str]:
    """Return the texts of the runtime table; its numbers come from the rows."""
    if reading.replication is None:
        return {}
    status = reading.replication.status
    table = {"haRole": _role(status)}
    if status.is_fenced:
        table["haFencedBy"] = status.fenced_by_address or status.fenced_by_owner
    if status.role == SLAVE:
        table["haLastError"] = status.last_error
    return table


def ha_health(node: HaNode) -> tuple[list[str], list[str]]:
    """Return (reasons for which sends fail, warnings)."""
    if node.fenced_by is not None:
        return ["fenced_by_epoch"], []
    if node.slave is not None:
        return [], [] if node.slave.status().connected else ["slave_follows_nobody"]
    status = node.status()
    if _in_sync(status) < _needed(status):
        return [], ["too_few_copies_in_sync"]
    return [], []
