"""Rules: a broker of RocketMQ, by what it says and what two checks show.

Lives here: slaves that are missing or do not follow, groups that stand still, long puts; the lines of these areas.

RocketMQ 5 lists the slaves of a master (907). RocketMQ 4 does not: there a slave's own end of the log, from its runtime
table, stands beside the master's. Which of them is behind is decided by the master's end at the previous check, so a
slave that is merely a moment later is none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.cli.doctor.broker_metrics import BrokerMetrics
from pocketmq.cli.doctor.finding import Area, Finding, error, note, warning
from pocketmq.cli.doctor.words import clean, count_text, ms_text, rate_text
from pocketmq.common.units import bytes_text, plural

LONG_PUT_MS: Final = 1_000
GROUP_BEHIND: Final = 1_000
"""Messages; a group that is less behind and stands still may just have no member."""
GROUPS_SHOWN: Final = 3
FALLBEHIND_MAX: Final = 256 << 20
"""RocketMQ's default of haSlaveFallbehindMax (haMaxGapNotInSync in 5.x)."""
_ABOUT: Final[dict[str, Any]] = {"area": Area.REPLICATION, "reference": "docs/replication.md"}


@dataclass(frozen=True, slots=True)
class _Slave:
    address: str
    end_offset: int
    behind: int


def rocketmq_rules(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Yield findings on a broker of RocketMQ; none for one of PocketMQ."""
    if metrics.snapshot.rocketmq is None:
        return
    if role_of(metrics) in ("SYNC_MASTER", "ASYNC_MASTER"):
        yield from _master(metrics)
    if role_of(metrics) != "SLAVE":  # its offsets are copies, and some seconds old
        yield from _groups(metrics)
    longest = metrics.number("putMessageEntireTimeMax")
    if longest is not None and longest >= LONG_PUT_MS:
        yield note(
            key="put-took-long",
            area=Area.APPEND,
            title=f"one put took {ms_text(longest)} since the start",
            evidence=(f"putMessageEntireTimeMax: {ms_text(longest)}; when, is not said",),
            cause="An append behind a slow or busy disk, or a wait for sync or slave: RocketMQ gives one time for all.",
            cure="Its logs know when and where: pocketmq explain --log ~/logs/rocketmqlogs",
        )


def role_of(metrics: BrokerMetrics) -> str:
    """Return brokerRole, empty if the broker did not send its settings."""
    return metrics.settings.text("broker_role") or ""


def _slaves(metrics: BrokerMetrics) -> list[_Slave] | None:
    """Return the slaves of a master; None if they are not known."""
    state, end = metrics.snapshot.rocketmq, metrics.size_bytes("commitLogMaxOffset")
    if state is not None and state.ha is not None:
        return [_Slave(clean(each.addr), each.slave_ack_offset, each.diff) for each in state.ha.ha_connection_info]
    known = [peer for peer in metrics.peers if peer.end_offset is not None]
    if end is None or not metrics.peers:
        return None
    return [_Slave(clean(peer.address), peer.end_offset or 0, max(end - (peer.end_offset or 0), 0)) for peer in known]


def _waits(metrics: BrokerMetrics) -> bool:
    """Return whether sends wait for a slave: always on a SYNC_MASTER of 4.9, in 5.x if inSyncReplicas asks for one."""
    replicas = metrics.settings.number("in_sync_replicas")
    return role_of(metrics) == "SYNC_MASTER" and (replicas is None or replicas > 1)


def _master(metrics: BrokerMetrics) -> Iterator[Finding]:
    slaves = _slaves(metrics)
    waits = _waits(metrics)
    if slaves is None:
        if waits:
            yield warning(
                **_ABOUT,
                key="slave-not-available",
                title="no slave of this SYNC_MASTER is known: if there is none, sends get SLAVE_NOT_AVAILABLE",
                evidence=("the name server lists no other broker of this name, or was not asked",),
                cause="RocketMQ 4 does not say which slaves are connected.",
                cure="Start the slave, or look for slaves with --namesrv; ASYNC_MASTER if none is wanted.",
            )
        return
    away = [f"{clean(peer.address)}: {clean(peer.error)}" for peer in metrics.peers if peer.end_offset is None]
    if not slaves:
        if role_of(metrics) == "SYNC_MASTER":
            yield (error if waits else warning)(
                **_ABOUT,
                key="slave-not-available",
                title=("no slave confirms: sends get SLAVE_NOT_AVAILABLE" + (" or FLUSH_SLAVE_TIMEOUT" if away else ""))
                if waits
                else "no slave is connected: messages are on this master alone",
                evidence=tuple(away) or ("no slave is connected",),
                cause="This SYNC_MASTER has no slave that could confirm: messages are stored on it alone.",
                cure="Start or repair the slave; see its store.log. Sends get SEND_OK again once it has caught up.",
            )
        return
    before = None if metrics.previous is None else metrics.previous.runtime.get("commitLogMaxOffset")
    late = [each for each in slaves if before and before.isdecimal() and each.end_offset < int(before[:19])]
    limit = metrics.settings.number("ha_slave_fallbehind_max") or FALLBEHIND_MAX
    if late and metrics.since_s is not None:
        most = max(late, key=lambda each: each.behind)
        seen = f"{most.address}: {bytes_text(most.behind)} behind; it lacks what came before the previous check, "
        blocked = waits and most.behind <= limit
        yield (error if blocked else warning)(
            **_ABOUT,
            key="slave-timeout" if blocked else "slave-falls-behind",
            title="sends wait for a slave that does not confirm: FLUSH_SLAVE_TIMEOUT, or no answer in time"
            if blocked
            else "a slave does not keep up: losing this master loses what the slave lacks",
            evidence=(f"{seen}{metrics.since_s:.1f} s ago", *away),
            cause="The slave is connected and does not take the log: it stands still, its disk fails or is full, or "
            "the network between them is slow.",
            cure="Look at the slave's process, its disk and its store.log; repair or replace it. A smaller "
            "haSlaveFallbehindMax turns the waits into SLAVE_NOT_AVAILABLE at once.",
            settings=metrics.advice("ha_slave_fallbehind_max", "smaller", "SLAVE_NOT_AVAILABLE instead of a wait"),
        )


def _groups(metrics: BrokerMetrics) -> Iterator[Finding]:
    state, before = metrics.snapshot.rocketmq, metrics.previous and metrics.previous.rocketmq
    if state is None or not state.groups or not before or before.groups is None or metrics.since_s is None:
        return
    consumed = {each.group: each.consumed for each in before.groups}
    still = [each for each in state.groups if each.behind >= GROUP_BEHIND and consumed.get(each.group) == each.consumed]
    if not still:
        return
    yield warning(
        key="group-stands-still",
        area=Area.READS,
        title=f"{plural(len(still), 'group')} behind and without progress",
        evidence=tuple(
            f"{clean(each.group)}: {count_text(each.behind)} messages behind, none within {metrics.since_s:.1f} s"
            for each in still[:GROUPS_SHOWN]
        ),
        cause="It has no member, its listener hangs, or its queues wait for locks of another client; RocketMQ lists no "
        "locks (lock.log; filter.log in 5.3).",
        cure="Look for its members (mqadmin consumerProgress, consumerConnection) and at their threads; a group that "
        "is not used any more may be deleted.",
    )


def slaves_line(metrics: BrokerMetrics) -> Iterator[str]:
    """Yield the values of the replication area."""
    state, role = metrics.snapshot.rocketmq, role_of(metrics)
    if state is None or not role:
        return
    if role == "SLAVE":
        yield "SLAVE"
        if state.ha is not None and not state.ha.master:
            own = state.ha.ha_client_runtime_info
            yield f"follows {clean(own.master_addr)}" if own.master_addr else "follows no master"
        return
    slaves = _slaves(metrics)
    if slaves is None:
        yield f"{role}; no slave is known to the name server"
    else:
        yield role
        yield f"{plural(len(slaves), 'slave')}" + (
            f", at most {bytes_text(max(each.behind for each in slaves))} behind" if slaves else " connected"
        )


def groups_line(metrics: BrokerMetrics) -> Iterator[str]:
    """Yield the lag of groups, for the area of reads."""
    state = metrics.snapshot.rocketmq
    if state is None or state.groups is None:
        return
    behind = [each for each in state.groups if each.behind]
    if not behind:
        yield f"{plural(len(state.groups), 'group')}, none behind"
        return
    first = behind[0]
    yield (
        f"{len(behind)} of {plural(len(state.groups), 'group')} behind, most {clean(first.group)}: "
        f"{count_text(first.behind)} messages, {rate_text(first.tps)}"
    )


def not_known(metrics: BrokerMetrics) -> str:
    """Return, in one line, what this broker cannot say and why."""
    state = metrics.snapshot.rocketmq
    what = [
        "stage times",
        "refusals by cause",
        "queue locks",
        "who may connect",
        "how many sends got FLUSH_SLAVE_TIMEOUT",
    ]
    if state is None or state.ha is None:
        what.append("the slaves' connections (RocketMQ 5 lists them; here the ends of the logs are compared)")
    if state is None or state.groups is None:
        what.append("the lag of groups (it did not answer)")
    return (
        f"no data on {', '.join(what)}: RocketMQ has no telemetry and no request for them; its logs and its clients' "
        "show some (pocketmq explain --log)"
    )
