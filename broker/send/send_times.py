"""The times of one append and of those who are answered after it.

Lives here: ``PutTiming`` (when an append was asked for and ended), ``SendTimes`` (what the send processor reports).
"""

from collections.abc import Sequence
from typing import Final

from pocketmq.broker.send.send_batch import PlannedSend
from pocketmq.broker.stats.flush_times import FlushTimes
from pocketmq.broker.stats.put_statistics import PutStatistics
from pocketmq.broker.stats.stage_times import SEND_PAIR, PairStages, RequestTiming, Stage
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.store.append_result import AppendResult

LOCK_HOLD_NS: Final = 500_000_000
"""Longer holds of the append lock are told (RocketMQ CommitLog logs each put above 500 ms under its lock)."""
_LOCK_WAIT: Final = int(Stage.LOCK_WAIT)
_APPEND: Final = int(Stage.APPEND)
_FLUSH_WAIT: Final = int(Stage.FLUSH_WAIT)
_REPLICA_WAIT: Final = int(Stage.REPLICA_WAIT)
_PROCESS: Final = int(Stage.PROCESS)


class PutTiming:
    """Monotonic ns: when the drain began, when the store was asked, when its append returned; the stages of the drain,
    with those of the append."""

    __slots__ = ("appended_ns", "asked_ns", "drained_ns", "stages_ns", "told")

    def __init__(self, drained_ns: int, asked_ns: int, appended_ns: int, stages_ns: list[int]) -> None:
        self.stages_ns = stages_ns
        self.drained_ns = drained_ns
        self.asked_ns = asked_ns
        self.appended_ns = appended_ns
        self.told = False
        """Whether a long hold of the append lock has been told of."""


class SendTimes:
    """Counts the puts of one broker. Called by send workers and by the thread that flushes."""

    def __init__(
        self,
        stages: PairStages,
        put_times: PutStatistics,
        flush_times: FlushTimes,
        flushes: bool,
        clock: Clock,
        lock_log: EventLog,
        *,
        replicates: bool = False,
    ) -> None:
        """``flushes``: senders that wait are answered after a flush (SYNC_FLUSH). ``lock_log`` hears of appends that
        held the lock for long. ``replicates``: they are answered after slaves have confirmed as well (SYNC_MASTER);
        disk and slaves are waited for at the same time, and all of that wait counts as theirs."""
        self._replicates = replicates
        self._lock_log = lock_log
        self._flush_times = flush_times
        self._stages = stages
        self._put_times = put_times
        self._flushes = flushes
        self._monotonic_ns = clock.monotonic_ns

    def answering(
        self, sends: Sequence[PlannedSend], result: AppendResult, put_timing: PutTiming, waited: bool
    ) -> RequestTiming:
        """Count what the store has just answered for; return the timing of ``sends``. ``waited``: for the flush."""
        now_ns = self._monotonic_ns()
        count = len(sends)
        self._put_times.record(now_ns - put_timing.asked_ns, count)
        if result.append_ns >= LOCK_HOLD_NS and not put_timing.told:
            put_timing.told = True
            self._lock_log.warning(
                "append_lock_slow",
                held_ms=result.append_ns // 1_000_000,
                lock_wait_ms=result.lock_wait_ns // 1_000_000,
                status=result.status.name,
            )
        stages_ns = put_timing.stages_ns
        stages_ns[_PROCESS] = (
            put_timing.appended_ns - put_timing.drained_ns - stages_ns[_LOCK_WAIT] - stages_ns[_APPEND]
        )
        if waited and self._replicates:
            stages_ns = stages_ns[:]
            replica_wait_ns = stages_ns[_REPLICA_WAIT] = now_ns - put_timing.appended_ns
            self._stages.record_ns(_REPLICA_WAIT, replica_wait_ns, count)
            self._flush_times.look()
        elif waited and self._flushes:
            stages_ns = stages_ns[:]
            flush_wait_ns = stages_ns[_FLUSH_WAIT] = now_ns - put_timing.appended_ns
            self._stages.record_ns(_FLUSH_WAIT, flush_wait_ns, count)
            self._flush_times.look()
        return SEND_PAIR, sends, sends[0].task.created_ns, stages_ns, put_timing.drained_ns
