"""Faults of a blind test of the doctor, and what it may and must not say about each.

Written after the doctor's rules, and before any round of the test.
A fault is made from outside, in a real cluster of a name server, a synchronous pair and a second master. Right: the
first finding of the first look is an accepted one, on an accepted node; with two faults, each is named. A forbidden
cure is wrong wherever it stands in the report.
"""

from dataclasses import dataclass
from typing import Final, Literal

Node = Literal["master", "slave", "second"]
Means = Literal["signal", "namespace", "file system", "settings", "client"]

NO_PROMOTION: Final = "pocketmq ha promote"
NO_DEMOTION: Final = "pocketmq ha demote"
NO_LIMIT: Final = "os_page_cache_busy_timeout_mills = 1000 →"
NO_LONGER_QUEUE: Final = "send_thread_pool_queue_capacity = 10000 →"
NO_FAST_FAILURE_OFF: Final = "broker_fast_failure_enable = true →"
NO_POOL: Final = "transient_store_pool_enable = false → true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``how``: what the generator does; ``accepted``: finding → nodes on which it is right as the first one."""

    name: str
    means: Means
    how: str
    accepted: dict[str, tuple[Node, ...]]
    forbidden: tuple[str, ...] = ()


FAULTS: Final = (
    Fault(name="nothing", means="client", how="a steady load of 200 sends a second", accepted={}),
    Fault(
        name="slave-frozen",
        means="signal",
        how="SIGSTOP to the slave under load",
        accepted={"slave-timeout": ("master",), "slave-not-available": ("master",), "not-read": ("slave",)},
        forbidden=(NO_PROMOTION, NO_DEMOTION),
    ),
    Fault(
        name="slave-killed",
        means="signal",
        how="SIGKILL to the slave under load",
        accepted={"slave-not-available": ("master",), "not-read": ("slave",)},
        forbidden=(NO_PROMOTION, NO_DEMOTION),
    ),
    Fault(
        name="master-frozen",
        means="signal",
        how="SIGSTOP to the master of the pair under load",
        accepted={"not-read": ("master",), "slave-follows-nobody": ("slave",)},
        forbidden=(NO_DEMOTION,),
    ),
    Fault(
        name="master-killed",
        means="signal",
        how="SIGKILL to the master of the pair",
        accepted={"not-read": ("master",), "slave-follows-nobody": ("slave",)},
        forbidden=(NO_DEMOTION,),
    ),
    Fault(
        name="second-killed",
        means="signal",
        how="SIGKILL to the second master",
        accepted={"not-read": ("second",)},
        forbidden=(NO_PROMOTION, NO_DEMOTION),
    ),
    Fault(
        name="pair-cut",
        means="namespace",
        how="the HA port is dropped between master and slave; clients and the doctor reach both",
        accepted={
            "slave-timeout": ("master",),
            "slave-not-available": ("master",),
            "slave-follows-nobody": ("slave",),
        },
        forbidden=(NO_PROMOTION, NO_DEMOTION),
    ),
    Fault(
        name="slave-network-gone",
        means="namespace",
        how="all packets to the slave are dropped",
        accepted={"slave-timeout": ("master",), "slave-not-available": ("master",), "not-read": ("slave",)},
        forbidden=(NO_PROMOTION, NO_DEMOTION),
    ),
    Fault(
        name="slave-read-only",
        means="file system",
        how="the slave's file system is remounted read-only under load",
        accepted={"slave-disk-failed": ("slave",), "slave-not-available": ("master",), "log-fenced": ("slave",)},
        forbidden=(NO_PROMOTION, NO_DEMOTION),
    ),
    Fault(
        name="slave-full",
        means="file system",
        how="the slave's file system is filled to the last block",
        accepted={"slave-disk-failed": ("slave",), "slave-not-available": ("master",), "disk-full": ("slave",)},
        forbidden=(NO_PROMOTION, NO_DEMOTION),
    ),
    Fault(
        name="master-full",
        means="file system",
        how="the second master's file system is filled above 90 %",
        accepted={"disk-full": ("second",), "refused-disk-full": ("second",)},
        forbidden=(NO_LIMIT, NO_LONGER_QUEUE),
    ),
    Fault(
        name="master-read-only",
        means="file system",
        how="the second master's file system is remounted read-only under load",
        accepted={"log-fenced": ("second",), "refused-disk-full": ("second",), "refused-disk-error": ("second",)},
        forbidden=(NO_LIMIT, NO_POOL),
    ),
    Fault(
        name="disk-frozen",
        means="file system",
        how="fsfreeze of the second master's file system for 10 s under load; the look falls into it",
        accepted={
            "disk-stalled": ("second",),
            "page-cache-busy": ("second",),
            "refused-page-cache-reject": ("second",),
        },
        forbidden=(NO_LIMIT, NO_FAST_FAILURE_OFF, NO_LONGER_QUEUE),
    ),
    Fault(
        name="disk-slow",
        means="file system",
        how="a device mapper delays each write of the second master's disk by 300 ms",
        accepted={
            "sync-slow": ("second",),
            "flush-behind": ("second",),
            "disk-stalled": ("second",),
            "page-cache-long-hold": ("second",),
            "refused-timeout": ("second",),
        },
        forbidden=(NO_LIMIT, NO_LONGER_QUEUE),
    ),
    Fault(
        name="one-request-a-drain",
        means="settings",
        how="send_drain_max = 1 and 500 sends in flight",
        accepted={"refused-timeout": ("second",), "rocketmq-pace": ("second",), "send-queue-filling": ("second",)},
        forbidden=(NO_LIMIT, NO_LONGER_QUEUE, NO_FAST_FAILURE_OFF),
    ),
    Fault(
        name="queue-of-ten",
        means="settings",
        how="send_thread_pool_queue_capacity = 10 and 500 sends in flight",
        accepted={"refused-queue-full": ("second",), "send-queue-filling": ("second",)},
        forbidden=(NO_LIMIT, NO_FAST_FAILURE_OFF),
    ),
    Fault(
        name="fast-failure-off",
        means="settings",
        how="broker_fast_failure_enable = false",
        accepted={"bad-cure-fast-failure-off": ("second",)},
    ),
    Fault(
        name="limit-raised",
        means="settings",
        how="os_page_cache_busy_timeout_mills = 60000",
        accepted={"bad-cure-page-cache-timeout": ("second",)},
    ),
    Fault(
        name="pool-of-one",
        means="settings",
        how="transient_store_pool_size = 1 with small segments under load",
        accepted={"refused-no-buffer": ("second",), "pool-deficient": ("second",)},
        forbidden=(NO_LIMIT,),
    ),
    Fault(
        name="ordered-holder-frozen",
        means="client",
        how="SIGSTOP to an ordered consumer; a second member of its group starts; the look is 30 s later",
        accepted={"ordered-queues-locked": ("master", "second"), "ordered-queues-contended": ("master", "second")},
        forbidden=(NO_PROMOTION,),
    ),
    Fault(
        name="illegal-heartbeats",
        means="client",
        how="a client whose heartbeats cannot be decoded, beside healthy ones",
        accepted={"refused-requests-heart-beat": ("second",)},
        forbidden=(NO_LIMIT, NO_LONGER_QUEUE),
    ),
)
"""One without a fault, and twenty. An accepted key also stands for longer ones that it begins."""
