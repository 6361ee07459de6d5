"""What a killed master's write buffers mean to replication: a tail of its log, no more."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.epochs import next_promotion
from tests.store.ha.nodes import Network, Node, drive, follow, texts_of


class Pair:
    """An asynchronous master with surviving write buffers, and its slave, which has all that was committed."""

    def __init__(self, base: Path) -> None:
        self.network, self.clock, self.shm = Network(), ManualClock(), base / "shm"
        self.shm.mkdir()
        pool: dict[str, Any] = {"transient_store_pool_enable": True, "transient_store_pool_path": str(self.shm)}
        self.master = Node(base / "master", self.network, self.clock, "ASYNC_MASTER", **pool)
        self.slave = Node(base / "slave", self.network, self.clock, "SLAVE")
        follow(self.master, self.slave)
        self.master.others = (self.slave,)
        self.master.send(b"committed")
        self.master.store.log.commit()
        drive(self.master, self.slave)
        assert texts_of(self.slave) == [b"committed"]
        self.master.send(b"in a buffer")

    def kill_master(self, *, buffers: bool = True) -> None:
        """``buffers``: its shared memory is there afterwards."""
        root, kept = self.master.root, self.shm.with_name("kept")
        shutil.copytree(root, root.with_name("killed"))
        shutil.copytree(self.shm, kept)
        self.master.close()
        shutil.rmtree(root)
        root.with_name("killed").rename(root)
        shutil.rmtree(self.shm)
        if buffers:
            kept.rename(self.shm)
        else:
            self.shm.mkdir()

    def events(self) -> list[str]:
        return [str(event["event"]) for event in self.master.log.events]


def test_a_master_whose_log_has_everything_does_not_ask_its_slaves(tmp_path: Path) -> None:
    """It leads at once, and the slave gets what was in the buffers."""
    pair = Pair(tmp_path)
    pair.kill_master()
    pair.master.open()
    assert pair.master.recovered_bytes == -1
    drive(pair.master, pair.slave)
    assert texts_of(pair.master) == texts_of(pair.slave) == [b"committed", b"in a buffer"]


def test_a_master_that_lost_its_buffers_asks_its_slaves(tmp_path: Path) -> None:
    """As after the loss of anonymous ones."""
    pair = Pair(tmp_path)
    pair.kill_master(buffers=False)
    pair.master.open()
    assert "master_asks_slaves" in pair.events()
    assert "write_buffers_missing" in pair.events()
    assert texts_of(pair.master) == [b"committed"]


def promote(pair: Pair) -> None:
    """Let the slave lead, and append something else where the buffers' bytes begin."""
    state = pair.slave.state
    epoch = next_promotion(state.promised_epoch)
    assert state.promise(epoch, state.new_owner())
    pair.slave.restart("ASYNC_MASTER")
    pair.slave.send(b"of the new master")
    drive(pair.slave)


def test_an_old_masters_buffers_are_cut_with_its_tail(tmp_path: Path) -> None:
    """Another node has led meanwhile: they go to the quarantine, and the log becomes the new master's."""
    pair = Pair(tmp_path)
    pair.kill_master()
    promote(pair)
    old, new = pair.master, pair.slave
    old.role = "SLAVE"
    old.changes.pop("transient_store_pool_enable")
    old.open()
    follow(new, old)
    for _ in range(3):
        drive(new, old)
        if old.reopens:
            old.reopens = 0
            old.restart()
            follow(new, old)
    drive(new, old)
    assert texts_of(old) == texts_of(new) == [b"committed", b"of the new master"]
    quarantine = old.root / "pocketmq" / "quarantine"
    assert b"in a buffer" in b"".join(path.read_bytes() for path in quarantine.iterdir())


@pytest.mark.parametrize("order", ["cut", "drop"])
def test_a_cut_that_was_ordered_before_the_kill_takes_the_buffers_along(tmp_path: Path, order: str) -> None:
    """The order stands in ha.json; the buffers are written first and cut with the rest, or dropped."""
    pair = Pair(tmp_path)
    committed = pair.master.end
    if order == "cut":
        pair.master.state.order_cut(committed)
    else:
        pair.master.state.order_drop()
    pair.kill_master()
    pair.master.role = "SLAVE"
    pair.master.changes.pop("transient_store_pool_enable")
    pair.master.open()
    assert pair.master.end == (committed if order == "cut" else 0)
    assert not list(pair.shm.iterdir())
