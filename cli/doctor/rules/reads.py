"""Rules: consumers' requests.

Lives here: the pull queue, slow reads, held pulls.
"""

from collections.abc import Iterator
from typing import Final

from pocketmq.cli.doctor.broker_metrics import PULL_PAIR, BrokerMetrics
from pocketmq.cli.doctor.finding import Area, Finding, warning
from pocketmq.cli.doctor.rules.send import FULL_SHARE, filling_title, queue_line
from pocketmq.cli.doctor.rules.slow_stage import slowest_lines, stage_line
from pocketmq.cli.doctor.words import ms_text
from pocketmq.common.units import plural

SLOW_READ_US: Final = 100_000.0
"""A read that takes this long at p99 waits for a slow or busy disk."""


def read_rules(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Yield what is slow or near its limit for consumers."""
    yield from _queue(metrics)
    yield from _slow_reads(metrics)
    yield from _holds(metrics)


def _queue(metrics: BrokerMetrics) -> Iterator[Finding]:
    pair = metrics.pair(PULL_PAIR)
    if pair is None or not (title := filling_title(pair, metrics.wait_limit_ms(PULL_PAIR), "pull")):
        return
    stages = (metrics.stage("queue_wait", PULL_PAIR), metrics.stage("process", PULL_PAIR))
    yield warning(
        key="pull-queue-filling",
        area=Area.READS,
        title=title,
        evidence=(queue_line(pair), *(stage_line(each, metrics.window) for each in stages if each is not None)),
        cause="Consumers pull faster than the broker reads: old messages from a busy disk, or too many consumers.",
        cure="Check the disk; consumers with larger pulls send fewer of them.",
        settings=metrics.advice(
            "pull_message_thread_pool_nums",
            "2" if metrics.snapshot.pocketmq else "more",
            "reads take processor time from sends",
        ),
    )


def _slow_reads(metrics: BrokerMetrics) -> Iterator[Finding]:
    reads = metrics.stage("process", PULL_PAIR)
    if reads is None or reads.p99_us < SLOW_READ_US:
        return
    yield warning(
        key="reads-slow",
        is_slowness=True,
        area=Area.READS,
        title=f"reads are slow: p99 {ms_text(reads.p99_us / 1000)}",
        evidence=(stage_line(reads, metrics.window), *slowest_lines(metrics, "process")),
        cause="Messages that have left memory are read from the disk, which is slow or busy. Such reads also push "
        "newer pages out of memory.",
        cure="Let consumers that are far behind read from a replica or at a quiet time; more memory; a faster disk.",
    )


def _holds(metrics: BrokerMetrics) -> Iterator[Finding]:
    holds, most = metrics.number("pullHolds"), metrics.settings.number("pull_holds_max")
    if holds is None or most is None or most <= 0 or holds <= most * FULL_SHARE:
        return
    yield warning(
        key="many-held-pulls",
        area=Area.READS,
        title=f"{plural(holds, 'pull')} of {plural(most, 'allowed', 'allowed')} are held for new messages",
        evidence=(f"held now: {holds} of {most}",),
        cause="Each consumer has a held pull for each queue without new messages. Above the limit pulls are answered "
        "at once and repeated, which costs processor time.",
        cure="Fewer queues or consumers; pulls over several queues at once (PocketMQ's native pull).",
        settings=metrics.advice("pull_holds_max", str(most * 2), "memory: about 1 KiB a hold"),
    )
