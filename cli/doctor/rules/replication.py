"""Rules: masters and slaves.

Lives here: a master that was replaced, sends that are stored on too few machines, a slave that does not follow.
"""

from collections.abc import Iterator
from typing import Any, Final

from pocketmq.cli.doctor.broker_metrics import BrokerMetrics
from pocketmq.cli.doctor.finding import Area, Finding, error, note, warning
from pocketmq.cli.doctor.words import clean, count_text
from pocketmq.common.units import bytes_text

SYNC_MASTER: Final = "SYNC_MASTER"
SLAVE_BEHIND_BYTES: Final = 64 << 20
_ABOUT: Final[dict[str, Any]] = {"area": Area.REPLICATION, "reference": "docs/replication.md"}


def replication_rules(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Yield findings on replication; none for a broker that sends no role."""
    role = metrics.runtime("haRole")
    if role == "FENCED":
        by = clean(metrics.runtime("haFencedBy") or "another broker")
        yield error(
            **_ABOUT,
            key="fenced-by-epoch",
            title="this master was replaced: it takes no sends",
            evidence=(f"replaced by {by}; newest own epoch {clean(metrics.runtime('haEpoch') or '?')}",),
            cause="Another broker was promoted under this name, so this one could confirm no new message.",
            cure="Make it a slave: pocketmq ha demote BROKER_NAME. Producers find the new master by themselves.",
        )
    elif role == "SLAVE":
        yield from _slave(metrics)
    elif role is not None:
        yield from _master(metrics)


def _master(metrics: BrokerMetrics) -> Iterator[Finding]:
    copies, needed = metrics.number("haInSyncCopies"), metrics.number("haInSyncCopiesNeeded")
    missing = copies is not None and needed is not None and copies < needed
    refused, late = metrics.grown("haSlaveNotAvailable"), metrics.grown("haSlaveTimeouts")
    refused_ever, late_ever = metrics.number("haSlaveNotAvailable") or 0, metrics.number("haSlaveTimeouts") or 0
    behind = metrics.size_bytes("haSlaveBehindBytesMax") or 0
    if missing or refused:
        yield error(
            **_ABOUT,
            key="slave-not-available",
            title="sends get SLAVE_NOT_AVAILABLE: they are stored on the master alone",
            evidence=(
                f"{count_text(int(copies or 0))} of {count_text(int(needed or 0))} copies in sync, the slave furthest "
                f"behind lacks {bytes_text(behind)}; {count_text(int(refused_ever))} such answers since the start",
            ),
            cause="A synchronous master waits for its slaves only while enough of them are connected and less than "
            "ha_slave_fallbehind_max behind; otherwise it answers at once that losing the master may lose the message.",
            cure="Find the missing slave with pocketmq ha status, and see its ha log; the answers are SEND_OK again "
            "when it has caught up.",
        )
    if late:
        yield error(
            **_ABOUT,
            key="slave-timeout",
            title="sends get FLUSH_SLAVE_TIMEOUT: no slave confirms in time",
            evidence=(
                f"{count_text(int(late))} since the previous check, {count_text(int(late_ever))} since the start; "
                f"{count_text(int(metrics.number('haWaiters') or 0))} drains wait now, the slave furthest behind lacks "
                f"{bytes_text(behind)}",
            ),
            cause="A slave is connected but slow: its disk, its CPU or the network. Each send waits slave_timeout.",
            cure="Find out what is slow on the slave (its ha and store logs, pocketmq doctor disk DIR there). A "
            "smaller ha_slave_fallbehind_max turns the waits into SLAVE_NOT_AVAILABLE at once.",
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


def _slave(metrics: BrokerMetrics) -> Iterator[Finding]:
    behind = metrics.size_bytes("haBehindBytes") or 0
    if metrics.runtime("haConnected") == "false":
        reason = clean(metrics.runtime("haLastError") or "no reason given")
        yield error(
            **_ABOUT,
            key="slave-follows-nobody",
            title="this slave follows no master",
            evidence=(reason,),
            cause="Its master is not reachable, or one of the two refuses the other: another cluster, a log that "
            "differs.",
            cure="See pocketmq ha status. Without a master: pocketmq ha promote BROKER_NAME.",
        )
    elif behind > SLAVE_BEHIND_BYTES:
        yield warning(
            **_ABOUT,
            key="slave-behind",
            title=f"this slave is {bytes_text(behind)} behind its master",
            evidence=(f"not copied yet: {bytes_text(behind)} now",),
            cause="It started late and catches up, or its disk or the network takes less than producers send.",
            cure="Watch whether it falls (--watch 5).",
        )


def replication_line(metrics: BrokerMetrics) -> Iterator[str]:
    """Yield the values of the area's line."""
    role = metrics.runtime("haRole")
    if role is None:
        return
    yield f"{clean(role)}, epoch {clean(metrics.runtime('haEpoch') or '?')}"
    if role == "SLAVE":
        follows = "follows" if metrics.runtime("haConnected") == "true" else "follows no master"
        yield f"{follows}, {bytes_text(metrics.size_bytes('haBehindBytes') or 0)} behind"
    elif metrics.number("haSlaves"):
        copies, needed = metrics.number("haInSyncCopies") or 0, metrics.number("haInSyncCopiesNeeded") or 0
        lack = bytes_text(metrics.size_bytes("haSlaveBehindBytesMax") or 0)
        yield f"{count_text(int(copies))} copies in sync, SEND_OK needs {count_text(int(needed))}"
        yield f"slaves at most {lack} behind"
