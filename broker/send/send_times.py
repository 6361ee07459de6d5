"""The times of one append and of the sends that are answered after it.

Lives here: ``PutTiming`` (when an append was requested and ended), ``SendTimes`` (counts them for the send processor).
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from pocketmq.broker.request.request_task import Task
from pocketmq.broker.send.send_batch import PlannedSend
from pocketmq.broker.stats.flush_times import FlushTimes
from pocketmq.broker.stats.put_statistics import PutStatistics
from pocketmq.broker.stats.rpc_times import RpcTimes
from pocketmq.broker.stats.stage_times import SEND_PAIR, STAGE_COUNT, PairStages, RequestTiming, Stage
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.store.append_result import AppendResult

LOCK_HOLD_NS: Final = 500_000_000
"""Longer holds of the append lock are logged (RocketMQ CommitLog logs each put above 500 ms under its lock)."""
_LOCK_WAIT: Final = int(Stage.LOCK_WAIT)
_APPEND: Final = int(Stage.APPEND)
_FLUSH_WAIT: Final = int(Stage.FLUSH_WAIT)
_REPLICA_WAIT: Final = int(Stage.REPLICA_WAIT)
_PROCESS: Final = int(Stage.PROCESS)


@dataclass(slots=True, eq=False)
class PutTiming:
    """Monotonic ns: when the drain began, when the store was called, when its append returned; the stages of the drain,
    with those of the append."""

    drained_ns: int
    asked_ns: int
    appended_ns: int
    stages_ns: list[int]
    logged: bool = False
    """Whether a long hold of the append lock has been logged."""


@dataclass(slots=True, eq=False)
class SendTimes:
    """Counts the puts of one broker. Called by send workers and by the thread that flushes."""

    stages: PairStages
    put_times: PutStatistics
    flush_times: FlushTimes
    flushes: bool
    """Whether sends that wait are answered after a flush (SYNC_FLUSH)."""
    clock: Clock
    lock_log: EventLog
    """Gets the appends that held the lock for long."""
    _: KW_ONLY
    rpc_times: RpcTimes = field(default_factory=RpcTimes)
    """Counts the short sends, which have no timing of their own; all others are counted with their answers."""
    replicates: bool = False
    """Whether they are answered after slaves have confirmed as well (SYNC_MASTER); they wait for disk and slaves at the
    same time, and the whole wait counts as the slaves'."""

    def answering(
        self,
        sends: Sequence[PlannedSend] | Sequence[Task],
        oldest_ns: int,
        result: AppendResult,
        put_timing: PutTiming,
        waited: bool,
    ) -> RequestTiming:
        """Count the puts that the store has just answered; return the timing of ``sends``, the first of which was
        queued at ``oldest_ns``. ``waited``: for the flush."""
        now_ns = self.clock.monotonic_ns()
        count = len(sends)
        self.put_times.record(now_ns - put_timing.asked_ns, count)
        if result.append_ns >= LOCK_HOLD_NS and not put_timing.logged:
            put_timing.logged = True
            self.lock_log.warning(
                "append_lock_slow",
                held_ms=result.append_ns // 1_000_000,
                lock_wait_ms=result.lock_wait_ns // 1_000_000,
                status=result.status.name,
            )
        stages_ns = put_timing.stages_ns
        stages_ns[_PROCESS] = (
            put_timing.appended_ns - put_timing.drained_ns - stages_ns[_LOCK_WAIT] - stages_ns[_APPEND]
        )
        if waited and (self.replicates or self.flushes):
            stage = _REPLICA_WAIT if self.replicates else _FLUSH_WAIT
            stages_ns = stages_ns[:]
            wait_ns = stages_ns[stage] = now_ns - put_timing.appended_ns
            self.stages.record_ns(stage, wait_ns, count)
            self.flush_times.look()
        return SEND_PAIR, sends, oldest_ns, stages_ns, put_timing.drained_ns

    def synced(self, count: int, put_ns: int, wait_ns: int) -> None:
        """Count sends that were quickly synced and answered in the thread that appended them, all with these times."""
        self.put_times.record(put_ns, count)
        self.stages.record_ns(_FLUSH_WAIT, wait_ns, count)
        self.flush_times.look()


def stages_of(put: tuple[int, int, int], answer_ns: int) -> list[int]:
    """Return the times of the stages of a short append: ``put`` says when it was asked for, had the append lock, and
    was done; then it was answered for ``answer_ns``. Each took place, so each counts, however short it was.
    """
    stages_ns = [0] * STAGE_COUNT
    stages_ns[_LOCK_WAIT] = put[1] - put[0] or 1
    stages_ns[_APPEND] = put[2] - put[1] or 1
    stages_ns[_PROCESS] = answer_ns or 1
    return stages_ns
