"""Bugs, put into the product for the time of a run: the checks must find each of them.

Lives here: ``BUGS``: name → what it changes.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pocketmq.broker import app
from pocketmq.broker.lock.lock_table import LockTable
from pocketmq.broker.transaction.transaction_commits import CommitGroup
from pocketmq.common.clock import SteadyTime
from pocketmq.namesrv.epochs import EpochTable
from pocketmq.store.commitlog.queue_offsets import QueueOffsets
from pocketmq.store.commitlog.segment import Segment
from pocketmq.store.ha import wire
from pocketmq.store.ha.connection import SlaveConnection
from pocketmq.store.ha.shown import Shown
from pocketmq.store.ha.slave import HaSlave
from pocketmq.store.ha.state import HaState
from pocketmq.store.ha.wire import Ack
from pocketmq.store.recovery import recovery
from tests.cluster_sim.installed import SimEpochFile


class Change(NamedTuple):
    """An attribute of a class or module, and what takes its place."""

    owner: Any
    name: str
    value: Any


def _sync_left_out() -> list[Change]:
    return [Change(Segment, "sync", lambda self: None)]


def _fence_ignored() -> list[Change]:
    return [Change(HaState, "fence", lambda self, epoch, owner, address="": False)]


def _confirmed_past_sent() -> list[Change]:
    def acknowledge(self: Any, *, always: bool = False) -> None:
        log = self._store.log
        offset = max(log.committed_offset, self._master_end)
        if always or self._ack is None or offset != self._ack.offset:
            self._ack = Ack(offset, min(log.flushed_offset, offset), self._master_now_ms)
            self._send(wire.encode_ack(self._ack))

    check = SlaveConnection._check_ack

    def check_ack(self: Any, ack: Ack) -> None:
        if self.ack_offset < 0:
            check(self, Ack(self._start_offset, ack.flushed_offset, ack.echo_ms))

    return [Change(HaSlave, "_acknowledge", acknowledge), Change(SlaveConnection, "_check_ack", check_ack)]


def _unconfirmed_shown() -> list[Change]:
    return [Change(Shown, "start", lambda self, runner, **_: None), Change(Shown, "moved", lambda self: None)]


def _replaced_master_waits() -> list[Change]:
    async def fence_if_replaced(*arguments: Any) -> bool:
        return False

    return [Change(app, "fence_if_replaced", fence_if_replaced)]


def _torn_tail_kept() -> list[Change]:
    return [Change(recovery, "end_before_torn_tail", lambda *arguments: None)]


def _offset_before_append() -> list[Change]:
    assign = QueueOffsets.assign

    def assign_at_once(self: QueueOffsets, group: Any) -> Any:
        assigned = assign(self, group)
        self.known.update(assigned[2])
        return assigned

    return [Change(QueueOffsets, "assign", assign_at_once)]


def _epoch_lost() -> list[Change]:
    return [Change(SimEpochFile, "load", lambda self: None)]


def _stale_master_believed() -> list[Change]:
    return [Change(EpochTable, "judge", lambda self, broker_name, claim, **_: True)]


def _lock_handed_out_twice() -> list[Change]:
    return [Change(LockTable, "is_expired", lambda self, lock, now_ns: True)]


def _committed_twice() -> list[Change]:
    add = CommitGroup.add
    calls = itertools.count(1)

    def add_twice(self: CommitGroup, record: bytes, physical_offset: int) -> None:
        add(self, record, physical_offset)
        if next(calls) % 20 == 0:
            add(self, record, physical_offset)

    return [Change(CommitGroup, "add", add_twice)]


def _stepped_clock() -> list[Change]:
    def now_ms(self: SteadyTime) -> int:
        return self._wall_ms()

    return [Change(SteadyTime, "now_ms", now_ms)]


BUGS: Final[Mapping[str, Callable[[], list[Change]]]] = {
    "sync-left-out": _sync_left_out,
    "fence-ignored": _fence_ignored,
    "confirmed-past-sent": _confirmed_past_sent,
    "torn-tail-kept": _torn_tail_kept,
    "offset-before-append": _offset_before_append,
    "epoch-lost": _epoch_lost,
    "stale-master-believed": _stale_master_believed,
    "lock-handed-out-twice": _lock_handed_out_twice,
    "committed-twice": _committed_twice,
    "stepped-clock": _stepped_clock,
    "unconfirmed-shown": _unconfirmed_shown,
    "replaced-master-waits": _replaced_master_waits,
}
