"""A slave takes over the deletion of a topic that was created again, and dies at every change of its disk meanwhile.

Messages from before the deletion are gone, later ones are there, on the slave as on its master.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.store.checkpoint import read_positions
from tests.sim.crash_file_system import CrashFileSystem, Killed, kill_at
from tests.sim.replication import NameServer, SimNode
from tests.store.ha.nodes import Network, drive, follow, texts_of
from tests.store.log_fakes import bodies

SETTINGS: dict[str, Any] = {"sync_on_close": True, "mapped_file_size_consume_queue": 20 * 4}


def lived(others: int) -> tuple[SimNode, SimNode, int]:
    """Return a master that has deleted T and uses it again, its slave, which has dispatched all of that on top of the
    old queues and made a checkpoint, and the log's end at the deletion. ``others``: messages of another topic behind
    the checkpoint, so that the queues have as many entries as were counted.
    """
    network, clock = Network(), ManualClock()
    name_server = NameServer(random.Random(1), forgets=False)
    master = SimNode("m", network, clock, "SYNC_MASTER", name_server, **SETTINGS)
    slave = SimNode("s", network, clock, "SLAVE", name_server, **SETTINGS)
    follow(master, slave)
    for number in range(12):
        master.send(b"old%d" % number)
    drive(master, slave, rounds=20)
    deleted_at = master.end
    master.store.delete_topic("T")
    for number in range(9):
        master.send(b"new%d" % number)
    drive(master, slave, rounds=20)
    slave.store.checkpoint()
    for number in range(others):
        master.store.append(bodies(b"other%d" % number, topic="Other"))
    drive(master, slave, rounds=20)
    slave.store.consume_queues.flush(force=True)
    assert slave.end == master.end
    return master, slave, deleted_at


def mirror(slave: SimNode, deleted_at: int) -> None:
    """Apply the master's list of deleted topics as the broker does."""
    if deleted_at > slave.store.consume_queues.deleted.get("T"):
        slave.store.delete_topic_below("T", deleted_at)
    drive(slave, rounds=3)


def check_left(slave: SimNode, master: SimNode, deleted_at: int, others: int) -> None:
    """Open the store that is left; a second start finds the same."""
    follow(master, slave)
    for _ in range(2):
        drive(master, slave, rounds=20)
        mirror(slave, deleted_at)
        drive(master, slave, rounds=20)
        assert slave.end == master.end
        assert texts_of(slave) == [b"new%d" % number for number in range(9)] == texts_of(master)
        assert len(texts_of(slave, "Other")) == others
        slave.restart()


Left = Callable[[CrashFileSystem, random.Random], list[CrashFileSystem]]


def killed(disk: CrashFileSystem, rng: random.Random) -> list[CrashFileSystem]:
    return [disk.after_kill()]


def without_power(disk: CrashFileSystem, rng: random.Random) -> list[CrashFileSystem]:
    return list(disk.crash_states(rng, 4))


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, pytest.param(40, marks=pytest.mark.soak)])
@pytest.mark.parametrize("left", [killed, without_power])
def test_a_deletion_that_dies_at_every_change(left: Left, others: int) -> None:
    """Between the list of deleted topics, the removal of the queues and the new dispatch, and after them."""
    change = 0
    while True:
        rng = random.Random(change)
        master, slave, deleted_at = lived(others)
        slave.disk.before = kill_at(change, rng)
        died = False
        try:
            mirror(slave, deleted_at)
            slave.store.consume_queues.flush(force=True)
        except Killed:
            died = True
        slave.disk.before = None
        for disk in left(slave.disk, rng):
            slave.network.cut()
            slave.boot += "+"
            slave.come_back(disk)
            check_left(slave, master, deleted_at, others)
        if not died:
            break
        change += 1
    assert change > 5


@pytest.mark.slow
def test_a_checkpoint_under_way_does_not_take_the_rewind_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has counted the queues before they lost entries, so its positions are not written."""
    master, slave, deleted_at = lived(3)
    store = slave.store
    master.send(b"one more")
    drive(master, slave, rounds=20)
    flush = store.index.flush

    def deletes_meanwhile() -> int:
        monkeypatch.undo()
        store.delete_topic_below("T", deleted_at)
        return flush()

    monkeypatch.setattr(store.index, "flush", deletes_meanwhile)
    store.checkpoint()
    positions = read_positions(slave.disk, store.paths)
    assert positions is not None
    assert positions.recover_offset <= deleted_at
    drive(slave, rounds=3)
    store.checkpoint()
    later = read_positions(slave.disk, store.paths)
    assert later is not None
    assert later.recover_offset == slave.end, "the next one goes on"
    slave.network.cut()
    slave.come_back(slave.disk.after_kill())
    assert texts_of(slave) == [*(b"new%d" % number for number in range(9)), b"one more"]
