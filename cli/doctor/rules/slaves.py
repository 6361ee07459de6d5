"""Rules: slaves, as they see themselves and as their master's finding explains them.

Lives here: ``slave_rules``; ``reason_of``, which looks at the other brokers of the name.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.cli.doctor.broker_metrics import BrokerMetrics, Peer
from pocketmq.cli.doctor.finding import Area, Finding, error, warning
from pocketmq.cli.doctor.words import clean, ms_text
from pocketmq.common.units import bytes_text
from pocketmq.remoting.protocol.ha import HaStatusBody

SLAVE_BEHIND_BYTES: Final = 64 << 20
REPAIR: Final = (
    "free space, or repair and remount its file system (see its kernel log). It follows again by itself when the disk "
    "takes bytes, after a failed sync only after a restart."
)
_ABOUT: Final[dict[str, Any]] = {"area": Area.REPLICATION, "reference": "docs/replication.md"}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a master lacks its slaves."""

    evidence: tuple[str, ...]
    cause: str
    cure: str


def reason_of(metrics: BrokerMetrics) -> Reason:
    """Return why too few slaves confirm, from what they say themselves."""
    ha = metrics.snapshot.ha
    lack = metrics.size_bytes("haSlaveBehindBytesMax")
    if ha is not None:
        evidence = tuple(_seen_by_master(ha))
    else:
        evidence = () if lack is None else (f"the connected slave furthest behind lacks {bytes_text(lack)}",)
    own_end = 0 if ha is None else ha.end_offset
    for peer in metrics.peers:
        evidence += (_seen_there(peer, own_end),)
    sick = [peer for peer in metrics.peers if peer.ha is not None and peer.ha.disk_error]
    silent = [peer for peer in metrics.peers if peer.ha is None]
    if sick:
        where = ", ".join(clean(peer.address) for peer in sick)
        return Reason(
            evidence,
            f"The disk of the slave at {where} refuses its writes.",
            f"At {where}: {REPAIR} The master is well: promote nothing.",
        )
    if silent:
        where = ", ".join(clean(peer.address) for peer in silent)
        return Reason(
            evidence,
            f"The slave at {where} does not answer this check either: it stands still, or the network to it is cut.",
            f"See whether the process at {where} runs (stopped, swapping, its machine), then the network.",
        )
    where = ", ".join(clean(peer.address) for peer in metrics.peers)
    if where and any(peer.ha is not None and not peer.ha.is_connected for peer in metrics.peers):
        return Reason(
            evidence,
            "The slave answers this check, and does not follow.",
            f"See the last error of {where} above, and the network between the two on the HA port.",
        )
    at = f" at {where}" if where else ""
    return Reason(
        evidence,
        "",
        f"Find the slave{at} with pocketmq ha status, and what is slow there (its ha and store logs, pocketmq doctor "
        "disk DIR on its machine).",
    )


def _seen_by_master(ha: HaStatusBody) -> Iterator[str]:
    if not ha.slaves:
        yield "no slave is connected to this master"
    for slave in ha.slaves:
        counts = "counts" if slave.is_in_sync else "does not count"
        age = f", its newest data is {ms_text(slave.behind_ms)} old" if slave.behind_ms > 0 else ""
        yield f"slave {slave.broker_id}: {bytes_text(slave.behind_bytes)} not confirmed{age}; it {counts} for SEND_OK"


def _seen_there(peer: Peer, own_end: int) -> str:
    ha = peer.ha
    address = clean(peer.address)
    if ha is None:
        return f"{address} does not answer: {clean(peer.error)}"
    lacks = f"lacks {bytes_text(max(0, own_end - ha.end_offset))}" if own_end else "answers"
    if ha.disk_error:
        return f"{address} {lacks}; its disk: {clean(ha.disk_error)}"
    if not ha.is_master and not ha.is_connected:
        return f"{address} {lacks}; it follows nobody: {clean(ha.last_error) or 'no reason given'}"
    return f"{address} {lacks}; it {'is a master' if ha.is_master else 'follows'}"


def slave_rules(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Yield findings on a broker that is a slave."""
    behind = metrics.size_bytes("haBehindBytes") or 0
    ha = metrics.snapshot.ha
    if ha is not None and ha.disk_error:
        yield error(
            **_ABOUT,
            key="slave-disk-failed",
            title="the disk of this slave refuses writes: it left its master",
            evidence=(clean(ha.disk_error), *_master_lines(metrics)),
            cause="This machine's disk, not the master: a file system that is read-only after an error, or full, or a "
            "failed sync. The master goes on without this copy.",
            cure=f"Here: {REPAIR} Promote nothing: the master has all messages, and this slave lacks the newest.",
            concerns=(Area.DISK,),
        )
    elif metrics.runtime("haConnected") == "false":
        yield _alone(metrics)
    elif behind > SLAVE_BEHIND_BYTES:
        yield warning(
            **_ABOUT,
            key="slave-behind",
            title=f"this slave is {bytes_text(behind)} behind its master",
            evidence=(f"not copied yet: {bytes_text(behind)} now",),
            cause="It started late and catches up, or its disk or the network takes less than producers send.",
            cure="Watch whether it falls (--watch 5).",
        )


def _alone(metrics: BrokerMetrics) -> Finding:
    evidence = (clean(metrics.runtime("haLastError") or "no reason given"), *_master_lines(metrics))
    if any(peer.ha is not None and peer.ha.is_master for peer in metrics.peers):
        return error(
            **_ABOUT,
            key="slave-follows-nobody",
            title="this slave follows no master",
            evidence=evidence,
            cause="Its master answers this check, so the way between the two is cut (the HA port, a firewall), or one "
            "of them refuses the other: another cluster, a log that differs.",
            cure="Check the HA port from this machine, and both with pocketmq ha status. Promote nothing: the master "
            "lives.",
        )
    return error(
        **_ABOUT,
        key="slave-follows-nobody",
        title="this slave follows no master",
        evidence=evidence,
        cause="Its master does not answer, or is not known here: it is down, or the network is cut.",
        cure="Look at the master first: pocketmq ha status. Only if it will not return: pocketmq ha promote "
        "BROKER_NAME.",
    )


def _master_lines(metrics: BrokerMetrics) -> Iterator[str]:
    for peer in metrics.peers:
        if peer.ha is None:
            yield f"{clean(peer.address)} does not answer: {clean(peer.error)}"
        elif peer.ha.is_master:
            own_end = metrics.snapshot.ha.end_offset if metrics.snapshot.ha is not None else 0
            lacks = f"; this slave lacks {bytes_text(max(0, peer.ha.end_offset - own_end))}" if own_end else ""
            yield f"the master at {clean(peer.address)} answers{lacks}"
