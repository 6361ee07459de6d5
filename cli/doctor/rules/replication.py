"""Rules: masters.

Lives here: a master that was replaced, sends that are stored on too few machines; the line of masters and slaves.
"""

from collections.abc import Iterator
from typing import Any, Final

from pocketmq.cli.doctor.broker_metrics import BrokerMetrics
from pocketmq.cli.doctor.finding import Area, Finding, Severity, error, note, warning
from pocketmq.cli.doctor.rules.slaves import SLAVE_BEHIND_BYTES, reason_of, slave_rules
from pocketmq.cli.doctor.rules.slow_stage import slowest_lines, stage_line
from pocketmq.cli.doctor.words import clean, count_text, ms_text
from pocketmq.common.units import bytes_text, plural

OLD_MS: Final = 5_000
"""From this age on the newest data of a slave are old: a healthy one confirms within milliseconds."""
SLAVE_TIMEOUT_MS: Final = 3_000
"""RocketMQ's default of ``slave_timeout``, for a broker that does not send its settings."""
_ABOUT: Final[dict[str, Any]] = {"area": Area.REPLICATION, "reference": "docs/replication.md"}


def replication_rules(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Yield findings on replication; none for a broker that sends no role."""
    role = metrics.runtime("haRole")
    if role == "FENCED":
        by = clean(metrics.runtime("haFencedBy") or "another broker")
        ha = metrics.snapshot.ha
        if by in (metrics.snapshot.address, None if ha is None else clean(ha.address)):
            yield error(
                **_ABOUT,
                key="fenced-by-own-epoch",
                title="this master has a new store under an old name: it takes no sends",
                evidence=(
                    f"epoch of its store: {clean(metrics.runtime('haEpoch') or '?')}; a name server knows a newer "
                    "one, of this same address",
                ),
                cause="The name servers remember the epoch of the store that this broker had before. Another store may "
                "still have confirmed messages, so a new one may not take the name by itself.",
                cure="If a slave has the old messages, promote it: pocketmq ha promote BROKER_NAME; this broker then "
                "becomes its slave. Or bring the old store back. Only if all of them are gone for good: stop the "
                "brokers of this name, and pocketmq ha forget BROKER_NAME. Do not use pocketmq ha demote: it leaves no "
                "master.",
            )
            return
        yield error(
            **_ABOUT,
            key="fenced-by-epoch",
            title="this master was replaced: it takes no sends",
            evidence=(f"replaced by {by}; newest own epoch {clean(metrics.runtime('haEpoch') or '?')}",),
            cause="Another broker was promoted under this name, so this one could confirm no new message.",
            cure="Make it a slave: pocketmq ha demote BROKER_NAME. Producers find the new master by themselves.",
        )
    elif role == "SLAVE":
        yield from slave_rules(metrics)
    elif role is not None:
        yield from _master(metrics)


def _master(metrics: BrokerMetrics) -> Iterator[Finding]:
    copies, needed = metrics.number("haInSyncCopies"), metrics.number("haInSyncCopiesNeeded")
    missing = copies is not None and needed is not None and copies < needed
    refused, refused_ever = metrics.grown("haSlaveNotAvailable"), metrics.number("haSlaveNotAvailable") or 0
    if missing or refused:
        why = reason_of(metrics)
        yield error(
            **_ABOUT,
            key="slave-not-available",
            title="sends get SLAVE_NOT_AVAILABLE: they are stored on the master alone",
            evidence=(
                f"{count_text(int(copies or 0))} of {count_text(int(needed or 0))} copies in sync, "
                f"{count_text(int(refused_ever))} such answers since the start",
                *why.evidence,
            ),
            cause="A synchronous master waits for its slaves only while enough of them are connected and less than "
            "ha_slave_fallbehind_max behind; otherwise it answers at once that losing the master may lose the "
            f"message. {why.cause}".rstrip(),
            cure=f"{why.cure} The answers are SEND_OK again when the slave has caught up.",
        )
    found = list(_timeouts(metrics))
    yield from found
    if not any(each.severity is Severity.ERROR for each in found):
        yield from _far_behind(metrics)


def _far_behind(metrics: BrokerMetrics) -> Iterator[Finding]:
    """A connected slave that no send waits for, and that does not keep up."""
    ha = metrics.snapshot.ha
    slaves = [] if ha is None else ha.slaves
    if any(
        each.behind_bytes > SLAVE_BEHIND_BYTES or (each.behind_bytes and each.behind_ms > OLD_MS) for each in slaves
    ):
        why = reason_of(metrics)
        yield warning(
            **_ABOUT,
            key="slave-falls-behind",
            title="a slave does not keep up: losing this master loses what the slave lacks",
            evidence=why.evidence,
            cause=f"It is connected and takes less than producers send, or nothing at all. {why.cause}".rstrip(),
            cure=why.cure,
        )


def _timeouts(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Sends that wait for a slave: known at the first check by the drains that wait and by their stage."""
    late, late_ever = metrics.grown("haSlaveTimeouts"), metrics.number("haSlaveTimeouts") or 0
    waiters, waited = metrics.number("haWaiters") or 0, metrics.stage("replica_wait")
    timeout_ms = metrics.settings.number("slave_timeout") or SLAVE_TIMEOUT_MS
    recent = waited is not None and waited.max_us >= timeout_ms * 1000
    silent_ms = _silent_ms(metrics)
    stuck = waiters > 0 and (recent if silent_ms is None else silent_ms >= timeout_ms / 2)
    if late or recent or stuck:
        why = reason_of(metrics)
        counted = f"{count_text(int(late_ever))} such answers since the start"
        if late is not None:
            counted += f", {count_text(int(late))} since the previous check"
        yield Finding(
            **_ABOUT,
            severity=Severity.ERROR if late or stuck else Severity.WARNING,
            key="slave-timeout",
            title="sends get FLUSH_SLAVE_TIMEOUT: no slave confirms in time"
            if late or stuck
            else f"sends got FLUSH_SLAVE_TIMEOUT {metrics.window}",
            evidence=(
                f"{count_text(int(waiters))} drains wait for a slave now; {counted}",
                *(() if waited is None else (stage_line(waited, metrics.window),)),
                *slowest_lines(metrics, "replica_wait"),
                *why.evidence,
            ),
            cause=f"A slave is connected and does not confirm within {ms_text(timeout_ms)} (slave_timeout): its disk, "
            f"its processors or the network. {why.cause}".rstrip(),
            cure=f"{why.cure} A smaller ha_slave_fallbehind_max turns the waits into SLAVE_NOT_AVAILABLE at once.",
        )
    elif late is None and late_ever:
        yield note(
            **_ABOUT,
            key="slave-timeouts-before",
            title="some sends were answered FLUSH_SLAVE_TIMEOUT since the start",
            evidence=(f"{count_text(int(late_ever))} of them; watch whether it grows (--watch 5)",),
            cause="A slave did not confirm within slave_timeout.",
            cure="None needed if it is over.",
        )


def _silent_ms(metrics: BrokerMetrics) -> int | None:
    """Return how old the newest data of the slave furthest behind is; None if unknown."""
    ha = metrics.snapshot.ha
    if ha is None:
        return None
    return max((slave.behind_ms for slave in ha.slaves if slave.behind_bytes > 0), default=0)


def replication_line(metrics: BrokerMetrics) -> Iterator[str]:
    """Yield the values of the area's line."""
    role = metrics.runtime("haRole")
    if role is None:
        return
    yield f"{clean(role)}, epoch {clean(metrics.runtime('haEpoch') or '?')}"
    if role == "SLAVE":
        follows = "follows" if metrics.runtime("haConnected") == "true" else "follows no master"
        yield f"{follows}, {bytes_text(metrics.size_bytes('haBehindBytes') or 0)} behind"
    elif metrics.number("haSlaves") or (metrics.number("haInSyncCopiesNeeded") or 0) > 1:
        copies, needed = metrics.number("haInSyncCopies") or 0, metrics.number("haInSyncCopiesNeeded") or 0
        lack = bytes_text(metrics.size_bytes("haSlaveBehindBytesMax") or 0)
        yield f"{count_text(int(copies))} copies in sync, SEND_OK needs {count_text(int(needed))}"
        yield f"slaves at most {lack} behind" if metrics.number("haSlaves") else "no slave is connected"
        if waiters := metrics.number("haWaiters"):
            yield f"{plural(waiters, 'drain')} of sends wait for a slave"
