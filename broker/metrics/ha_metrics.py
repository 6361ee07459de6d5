"""Replication in figures: for Prometheus, the runtime table and ``/health``.

Lives here: ``ha_families``, ``ha_interval``, ``ha_runtime_info``, ``ha_health``, all from one status.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pocketmq.broker.ha.ha_node import HaNode
from pocketmq.broker.ha.ha_roles import SLAVE
from pocketmq.remoting.protocol.ha import HaStatusBody
from pocketmq.store.ha.service import HaService

SYNC_MASTER = "SYNC_MASTER"


def _in_sync(status: HaStatusBody) -> int:
    """Return how many copies are in sync, the master's included."""
    return 1 + sum(slave.is_in_sync for slave in status.slaves)


def ha_families(node: HaNode) -> Iterator[Metric]:
    """Yield the families of docs/metrics.md; any thread."""
    status = node.status()
    role = GaugeMetricFamily("pocketmq_ha_role", "1 for the role of this broker.", labels=["role"])
    role.add_metric(["FENCED" if status.is_fenced else status.role], 1)
    yield role
    gauges: list[tuple[str, str, float]] = [
        ("ha_epoch", "Newest epoch of the log.", status.last_epoch),
        ("ha_fenced", "1 once another master has replaced this one.", status.is_fenced),
        ("ha_confirmed_offset", "Up to here enough copies have the log.", status.confirmed_offset),
    ]
    if status.role == SLAVE:
        gauges += [
            ("ha_connected", "1 while this slave follows its master.", status.is_connected),
            ("ha_behind_bytes", "What this slave lacks of its master's log.", status.behind_bytes),
            ("ha_behind_seconds", "How old what it has is, -1 unknown.", _seconds(status.behind_ms)),
        ]
    else:
        gauges += [
            ("ha_waiters", "Drains of sends that wait for slaves.", status.waiters),
            ("ha_in_sync_copies", "Copies in sync, the master's included.", _in_sync(status)),
            ("ha_in_sync_copies_needed", "Copies that SEND_OK waits for.", _needed(status)),
        ]
    for name, text, value in gauges:
        yield GaugeMetricFamily(f"pocketmq_{name}", text, value=float(value))
    if node.service is not None:
        yield from _service_counters(node.service)
    if status.slaves:
        yield from _slave_families(status)


def _needed(status: HaStatusBody) -> int:
    return status.in_sync_replicas if status.role == SYNC_MASTER else 1


def _seconds(time_ms: int) -> float:
    return time_ms / 1000 if time_ms >= 0 else -1.0


def _slave_families(status: HaStatusBody) -> Iterator[Metric]:
    families = {
        name: GaugeMetricFamily(f"pocketmq_{name}", text, labels=["slave", "broker_id"])
        for name, text in (
            ("ha_slave_behind_bytes", "What a slave has not confirmed yet."),
            ("ha_slave_behind_seconds", "How old what it has confirmed is, -1 unknown."),
            ("ha_slave_in_sync", "1 while its confirmations count for SEND_OK."),
            ("ha_slave_sent_bytes", "Bytes of the log sent on its connection."),
        )
    }
    for slave in status.slaves:
        labels = [slave.node_id or slave.address, str(slave.broker_id)]
        families["ha_slave_behind_bytes"].add_metric(labels, slave.behind_bytes)
        families["ha_slave_behind_seconds"].add_metric(labels, _seconds(slave.behind_ms))
        families["ha_slave_in_sync"].add_metric(labels, slave.is_in_sync)
        families["ha_slave_sent_bytes"].add_metric(labels, slave.sent_bytes)
    yield from families.values()


def _service_counters(service: HaService) -> Iterator[Metric]:
    told = service.status()
    for name, text, value in (
        ("ha_waits_served", "Waits for slaves that ended with a confirmation.", told.served),
        ("ha_waits_timed_out", "Waits answered FLUSH_SLAVE_TIMEOUT.", told.timeouts),
        ("ha_slave_not_available", "Sends answered SLAVE_NOT_AVAILABLE at once.", told.not_available),
        ("ha_connections_refused", "Strangers and slaves turned away on the HA port.", told.refused),
    ):
        yield CounterMetricFamily(f"pocketmq_{name}", text, value=value)


def ha_interval(node: HaNode) -> dict[str, int]:
    """Return the figures that a broker's log tells with each interval; running totals end in ``_total``."""
    status = node.status()
    if status.role == SLAVE:
        return {
            "slave_connected": int(status.is_connected),
            "behind_bytes": status.behind_bytes,
            "behind_ms": status.behind_ms,
        }
    figures = {
        "copies_in_sync": _in_sync(status),
        "copies_needed": status.in_sync_replicas if status.role == SYNC_MASTER else 1,
        "slaves": len(status.slaves),
        "slave_behind_bytes_max": max((slave.behind_bytes for slave in status.slaves), default=0),
        "slave_behind_ms_max": max((slave.behind_ms for slave in status.slaves), default=0),
    }
    if node.service is not None:
        told = node.service.status()
        figures["slave_timeouts_total"] = told.timeouts
        figures["slave_not_available_total"] = told.not_available
    return figures


def ha_runtime_info(node: HaNode) -> dict[str, str]:
    """Return the keys of the runtime table that ``pocketmq doctor`` reads."""
    status = node.status()
    table = {
        "haRole": "FENCED" if status.is_fenced else status.role,
        "haEpoch": str(status.last_epoch),
        "haConfirmedOffset": str(status.confirmed_offset),
    }
    if status.is_fenced:
        table["haFencedBy"] = status.fenced_by_address or status.fenced_by_owner
    if status.role == SLAVE:
        table["haConnected"] = str(status.is_connected).lower()
        table["haBehindBytes"] = str(status.behind_bytes)
        table["haLastError"] = status.last_error
    elif node.service is not None:
        told = node.service.status()
        table["haInSyncCopies"] = str(_in_sync(status))
        table["haInSyncCopiesNeeded"] = str(_needed(status))
        table["haSlaves"] = str(len(status.slaves))
        table["haSlaveBehindBytesMax"] = str(max((slave.behind_bytes for slave in status.slaves), default=0))
        table["haSlaveTimeouts"] = str(told.timeouts)
        table["haSlaveNotAvailable"] = str(told.not_available)
        table["haWaiters"] = str(told.waiters)
    return table


def ha_health(node: HaNode) -> tuple[list[str], list[str]]:
    """Return (reasons why sends fail, warnings)."""
    if node.fenced_by is not None:
        return ["fenced_by_epoch"], []
    if node.slave is not None:
        return [], [] if node.slave.status().connected else ["slave_follows_nobody"]
    status = node.status()
    if _in_sync(status) < _needed(status):
        return [], ["too_few_copies_in_sync"]
    return [], []
