"""Rules: queue locks of ordered consumption.

Lives here: queues that stand still because their lock belongs to a client that is gone, or that does not let go.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pocketmq.cli.doctor.broker_metrics import BrokerMetrics
from pocketmq.cli.doctor.finding import Area, Finding, error, warning
from pocketmq.cli.doctor.words import clean, count_text, ms_text
from pocketmq.common.units import plural
from pocketmq.remoting.protocol.lock import LockInfo

RENEWALS_SHARE: Final = 0.4
"""Holders renew after a third of the longest life of a lock; one that is later has missed a renewal."""
WAITING_MS: Final = 5_000
"""A member of the group waits so long at most while its queues move to it in an orderly way."""
SHOWN_MAX: Final = 3
_ABOUT: Final[dict[str, Any]] = {"area": Area.LOCKS, "reference": "pocketmq scenario ordered-lock-stuck"}


def lock_rules(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Yield findings on locks for which a client waits; none for a broker that does not list its locks."""
    table = metrics.snapshot.locks
    if table is None:
        return
    live_ms = table.lock_max_live_time
    waited = [lock for lock in table.locks if lock.waiting]
    silent = [lock for lock in waited if _is_silent(lock, live_ms)]
    if silent:
        longest_ms = max(lock.expires_in_ms for lock in silent)
        yield error(
            **_ABOUT,
            key="ordered-queues-locked",
            title=f"no progress in {_queues(silent)}: the holder of the lock has gone silent",
            evidence=_lines(silent),
            cause="Only the holder of a queue's lock may consume it in order. This holder died or lost its network "
            "without giving its locks back, and the broker keeps them until they expire"
            + (f" after {ms_text(live_ms)} without renewal." if live_ms > 0 else "."),
            cure=(f"They end by themselves within {ms_text(longest_ms)}. " if longest_ms > 0 else "")
            + "At once, if the holder will not return: pocketmq lock release. Stop consumers with SIGTERM, so that "
            "they give their locks back; a shorter life of locks lets the next one wait less.",
            settings=metrics.advice(
                "lock_max_live_time",
                "15000",
                "clients must renew every 5 s (RocketMQ: rocketmq.client.rebalance.lockInterval), and a pause of 15 s "
                "costs a client its locks",
            ),
        )
    contended = [lock for lock in waited if lock not in silent and _longest_wait_ms(lock) >= WAITING_MS]
    if contended:
        yield warning(
            **_ABOUT,
            key="ordered-queues-contended",
            title=f"a client waits for the lock of {_queues(contended)}, which another one renews",
            evidence=_lines(contended),
            cause="The holder renews its locks, and another member of the group waits for them: the two do not agree "
            "on the members of the group, or the holder is busy with a message and lets go after it. A holder that "
            "died a moment ago looks the same until it misses a renewal.",
            cure="Look again in a moment (--watch 5). If it stays: pocketmq group describe GROUP --running shows what "
            "the holder does.",
        )


def lock_line(metrics: BrokerMetrics) -> Iterator[str]:
    """Yield the values of the area's line."""
    table = metrics.snapshot.locks
    if table is None:
        return
    held = len(table.locks) + max(table.left_out, 0)
    yield f"{plural(held, 'queue lock')} held" if held else "no queue is locked"
    if held:
        yield f"clients wait for {count_text(sum(bool(lock.waiting) for lock in table.locks))} of them"


def _is_silent(lock: LockInfo, live_ms: int) -> bool:
    missed = live_ms > 0 and lock.renewed_ms_ago > live_ms * RENEWALS_SHARE
    return missed or lock.release_in_ms >= 0 or lock.expires_in_ms < 0


def _longest_wait_ms(lock: LockInfo) -> int:
    return max(each.waiting_ms for each in lock.waiting)


def _queues(locks: Sequence[LockInfo]) -> str:
    groups = sorted({lock.consumer_group for lock in locks})
    of = f"group {clean(groups[0])}" if len(groups) == 1 else plural(len(groups), "group")
    return f"{plural(len(locks), 'ordered queue')} of {of}"


def _lines(locks: Sequence[LockInfo]) -> tuple[str, ...]:
    """Return a line for each of the locks for which a client waits longest."""
    first = sorted(locks, key=lambda lock: -_longest_wait_ms(lock))[:SHOWN_MAX]
    lines = [_line(lock) for lock in first]
    if len(locks) > len(first):
        lines.append(f"and {plural(len(locks) - len(first), 'queue')} more: pocketmq lock list")
    return tuple(lines)


def _line(lock: LockInfo) -> str:
    waiter = max(lock.waiting, key=lambda each: each.waiting_ms)
    state = f"renewed {ms_text(lock.renewed_ms_ago)} ago"
    if lock.release_in_ms >= 0:
        state += f", connection lost, released in {ms_text(lock.release_in_ms)}"
    elif lock.expires_in_ms < 0:
        state += ", expired"
    else:
        state += f", expires in {ms_text(lock.expires_in_ms)}"
    return (
        f"{clean(lock.topic)} queue {lock.queue_id}, group {clean(lock.consumer_group)}: held by "
        f"{clean(lock.client_id)} at {clean(lock.address)}, {state}; {clean(waiter.client_id)} waits for "
        f"{ms_text(waiter.waiting_ms)}"
    )
