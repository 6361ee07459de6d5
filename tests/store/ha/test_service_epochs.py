"""A master's epochs, its fence, and its memory of its slaves."""

import random
from pathlib import Path

import pytest

from pocketmq.common.epochs import EPOCH_PROMISED_MAX, highest_allowed, next_promotion
from pocketmq.common.errors import Cause
from pocketmq.store.append_result import PutStatus
from pocketmq.store.errors import DiskError
from pocketmq.store.ha.epochs import Epoch, EpochTable
from pocketmq.store.ha.state import HaFenced, HaState
from tests.store.ha.master import Master
from tests.store.log_fakes import Stepped, bodies


def test_every_start_opens_an_epoch_at_the_end_of_the_log(tmp_path: Path) -> None:
    """Even if no message was stored since the last one."""
    master = Master(tmp_path)
    end = master.append(b"one")
    first = master.epoch
    master.close()
    again = Master(tmp_path, seed=2)
    assert (again.epoch.number, again.epoch.start_offset) == (first.number + 1, end)
    assert again.epoch.owner != first.owner
    slave = again.slave(end_offset=end, epochs=[(first.number, first.owner, 0)])
    assert slave.welcome is not None
    assert slave.welcome.epochs[-1] == (again.epoch.number, again.epoch.owner, end)
    again.close()


def test_a_slave_can_stop_amid_messages_that_are_older_than_replication(tmp_path: Path) -> None:
    """These bytes get an epoch of their own, so that it is known on its return."""
    before = Stepped(tmp_path)
    middle = before.append(b"old")
    before.append(b"also old")
    before.store.close()
    master = Master(tmp_path)
    assert master.epoch.number == 2
    slave = master.slave()
    assert slave.welcome is not None
    epochs = EpochTable(Epoch(*row) for row in slave.welcome.epochs).cut(middle)
    rows = [(entry.number, entry.owner, entry.start_offset) for entry in epochs.entries]
    again = master.slave(end_offset=middle, epochs=rows)
    assert again.welcome is not None
    assert (again.welcome.start_offset, again.welcome.cut_to) == (middle, None)
    master.close()


def test_a_slave_that_promised_a_higher_epoch_fences_the_master(tmp_path: Path) -> None:
    """The fence is durable; waiting and new sends learn that the result is unknown."""
    master = Master(tmp_path, total_replicas=3)
    fenced: list[object] = []
    master.ha.on_fenced = fenced.append
    master.following(node_id="one")
    waiting = master.send(b"one")
    messenger = master.slave("10.0.0.3:5000", node_id="two", promised=(1_000_000, "two.x"))
    assert messenger.refused is not None
    assert messenger.refused.code == "higher_epoch"
    assert master.told == [(waiting, PutStatus.SERVICE_NOT_AVAILABLE)]
    for wait in (True, False):  # appended before the fence, acknowledged after it
        master.store.acknowledge(waiting, wait, lambda status: master.told.append((waiting, status)))
    assert master.told == [(waiting, PutStatus.SERVICE_NOT_AVAILABLE)] * 3
    assert master.store.append(bodies(b"two")).cause is Cause.NOT_MASTER
    assert master.ha.is_fenced
    assert len(fenced) == 1
    assert len(master.events("master_fenced")) == 1
    by = master.ha.status().fenced_by
    assert by is not None
    assert (by.epoch, by.owner) == (1_000_000, "two.x")
    master.settle()
    assert not master.ha.status().slaves
    master.close()
    with pytest.raises(HaFenced):
        Master(tmp_path, seed=2)


def test_an_absurd_number_fences_no_further_than_a_promotion_goes(tmp_path: Path) -> None:
    """Some number stays for the promotion that cures it, here of the node itself."""
    master = Master(tmp_path)
    master.following(node_id="one")
    liar = master.slave("10.0.0.3:5000", node_id="one", promised=(EPOCH_PROMISED_MAX, "one.x"))
    assert liar.refused is not None
    assert master.ha.is_fenced
    assert master.state.promised_epoch == highest_allowed(1)
    assert master.state.promise(next_promotion(master.state.promised_epoch), master.state.new_owner())
    master.close()


def test_a_fence_that_cannot_be_written_still_ends_the_acknowledgements(tmp_path: Path) -> None:
    """The promise was not made, so the caller gets the error."""
    master = Master(tmp_path)
    master.following()
    end = master.send(b"one")

    def fail(epoch: int, owner: str, address: str = "") -> bool:
        raise DiskError("no")

    master.state.fence = fail  # type: ignore[method-assign]
    with pytest.raises(DiskError):
        master.ha.fence(1_000_000, "two.x", "")
    assert master.told == [(end, PutStatus.SERVICE_NOT_AVAILABLE)]
    master.close()


def test_an_old_epoch_fences_nobody(tmp_path: Path) -> None:
    """A promise that is not newer changes nothing."""
    master = Master(tmp_path)
    assert not master.ha.fence(master.epoch.number, "other.x", "")
    assert not master.ha.is_fenced
    master.close()


def test_who_follows_is_on_disk_before_its_first_acknowledgement_counts(tmp_path: Path) -> None:
    """After a crash the master must know which slaves to ask for its lost bytes."""
    master = Master(tmp_path)
    slave = master.slave()
    assert slave.welcome is not None
    seen = HaState(master.store.file_system, master.store.paths, master.clock, random.Random(1).randbytes)
    seen.load()
    assert seen.slaves == {"slave1": 0}
    assert not seen.clean
    master.close()


def test_what_was_confirmed_is_remembered(tmp_path: Path) -> None:
    """It is stored about once a second, and at the end."""
    master = Master(tmp_path)
    slave = master.following()
    end = master.send(b"one")
    slave.receive()
    slave.ack()
    master.settle()
    master.clock.advance_ms(6000)
    master.settle()
    assert master.state.confirmed_offset == end
    assert master.state.slaves == {"slave1": end}
    master.close()
    again = Master(tmp_path, seed=2)
    assert again.ha.status().confirmed_offset == end
    again.close()


def test_a_slave_that_takes_a_missing_ones_place_is_told_of(tmp_path: Path) -> None:
    """The old one lacks later confirmed messages: it must not be promoted, and no send waits for it."""
    master = Master(tmp_path)
    old = master.following(node_id="old")
    old.transport.close()
    master.settle()
    master.following(node_id="new")
    assert master.state.slaves.keys() == {"new"}
    assert master.events("slave_replaced")[0]["gone"] == ["old"]
    master.close()
