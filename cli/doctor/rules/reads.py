"""Rules: consumers' requests.

Lives here: the pull queue, slow reads, held pulls.
"""

from collections.abc import Iterator
from typing import Final

from pocketmq.cli.doctor.broker_metrics import PULL_PAIR, BrokerMetrics
from pocketmq.cli.doctor.finding import Area, Finding, Severity
from pocketmq.cli.doctor.rules.send import FULL_SHARE, queue_line, queue_share
from pocketmq.cli.doctor.rules.slow_stage import slowest_lines, stage_line
from pocketmq.cli.doctor.words import ms_text, percent_text, plural

PULL_WAIT_LIMIT_MS: Final = 5000
"""RocketMQ BrokerConfig.waitTimeMillsInPullQueue."""
SLOW_READ_US: Final = 100_000.0
"""A read that takes this long at p99 goes to a disk that is slow or busy."""


def read_rules(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Yield what is slow or near its limit for consumers."""
    yield from _queue(metrics)
    yield from _slow_reads(metrics)
    yield from _holds(metrics)


def pull_limit_ms(metrics: BrokerMetrics) -> int:
    """Return the longest wait in the pull queue."""
    pair = metrics.pair(PULL_PAIR)
    told = pair.max_wait_ms if pair is not None and pair.max_wait_ms > 0 else None
    return told or metrics.settings.number("wait_time_mills_in_pull_queue") or PULL_WAIT_LIMIT_MS


def _queue(metrics: BrokerMetrics) -> Iterator[Finding]:
    pair = metrics.pair(PULL_PAIR)
    if pair is None:
        return
    limit_ms, share = pull_limit_ms(metrics), queue_share(pair)
    late = pair.head_wait_ms > limit_ms * FULL_SHARE
    if share <= FULL_SHARE and not late:
        return
    yield Finding(
        key="pull-queue-filling",
        area=Area.READS,
        severity=Severity.WARNING,
        title=(
            f"pulls wait {ms_text(pair.head_wait_ms)} of {ms_text(limit_ms)} in the queue"
            if late
            else f"the pull queue is {percent_text(share)} full"
        ),
        evidence=(queue_line(pair), *_stages(metrics)),
        cause="Reads are slower than consumers ask: old messages from a busy disk, or too many consumers.",
        cure="Look at the disk; consumers with larger pulls ask less often.",
        settings=(
            metrics.advice(
                "pull_message_thread_pool_nums",
                "pullMessageThreadPoolNums",
                "2" if metrics.snapshot.pocketmq else "more",
                "reads take processor time from sends",
            ),
        ),
    )


def _stages(metrics: BrokerMetrics) -> tuple[str, ...]:
    found = (metrics.stage("queue_wait", PULL_PAIR), metrics.stage("process", PULL_PAIR))
    return tuple(stage_line(each, metrics.window) for each in found if each is not None)


def _slow_reads(metrics: BrokerMetrics) -> Iterator[Finding]:
    reads = metrics.stage("process", PULL_PAIR)
    if reads is None or reads.p99_us < SLOW_READ_US:
        return
    yield Finding(
        key="reads-slow",
        area=Area.READS,
        severity=Severity.WARNING,
        title=f"reads are slow: p99 {ms_text(reads.p99_us / 1000)}",
        evidence=(stage_line(reads, metrics.window), *slowest_lines(metrics, "process")),
        cause="Messages that are not in memory any more are read from the disk, which is slow or busy. Such reads push "
        "newer pages out of memory, too.",
        cure="Let consumers that are far behind read from a replica or at a quiet time; more memory; a faster disk.",
    )


def _holds(metrics: BrokerMetrics) -> Iterator[Finding]:
    holds, most = metrics.number("pullHolds"), metrics.settings.number("pull_holds_max")
    if holds is None or most is None or most <= 0 or holds <= most * FULL_SHARE:
        return
    yield Finding(
        key="many-held-pulls",
        area=Area.READS,
        severity=Severity.WARNING,
        title=f"{plural(holds, 'pull')} are held for new messages, of {plural(most, 'allowed', 'allowed')}",
        evidence=(f"held now: {holds} of {most}",),
        cause="Each consumer holds a pull for each queue that has nothing new. Above the limit pulls are answered at "
        "once and come again, which costs processor time.",
        cure="Fewer queues or consumers; pulls over several queues at once (PocketMQ's native pull).",
        settings=(metrics.advice("pull_holds_max", "pull_holds_max", str(most * 2), "memory: about 1 KiB a hold"),),
    )
