"""A slave follows its master's log, acknowledges the bytes it holds, and never drops confirmed ones."""

from pathlib import Path
from typing import Any

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.epochs import next_promotion
from pocketmq.store.append_result import PutStatus
from pocketmq.store.errors import DiskError, StoreReadOnly
from tests.store.ha.nodes import Network, Node, drive, drive_replication, follow, is_prefix, texts_of
from tests.store.log_fakes import SEGMENT_BYTES, HookedFileSystem


class Rig:
    """A master and a slave that know each other."""

    def __init__(self, tmp_path: Path, role: str = "SYNC_MASTER", **changes: Any) -> None:
        self.path = tmp_path
        self.network = Network()
        self.clock = ManualClock()
        self.master = Node(tmp_path / "master", self.network, self.clock, role, **changes)
        self.disk = HookedFileSystem()
        self.slave = Node(tmp_path / "slave", self.network, self.clock, "SLAVE", files=self.disk, **changes)
        follow(self.master, self.slave)

    def drive(self, rounds: int = 12) -> None:
        drive(self.master, self.slave, rounds=rounds)

    def fill(self, count: int = 10, size_bytes: int = 700) -> None:
        for number in range(count):
            self.master.send(str(number).encode() * size_bytes)
            self.drive(2)
        self.drive()

    def following(self) -> bool:
        assert self.slave.slave is not None
        return self.slave.slave.status().connected


def refuse_log_writes(operation: str, path: str) -> None:
    if operation == "write" and "commitlog" in path:
        raise StoreReadOnly("write refused", why="the file system is read-only")


def test_a_send_is_ok_when_the_slave_has_it(tmp_path: Path) -> None:
    """SEND_OK under SYNC_MASTER: the bytes are in the slave's log before the answer."""
    rig = Rig(tmp_path)
    rig.drive()
    end = rig.master.send(b"one")
    assert rig.master.statuses == []
    rig.drive()
    assert rig.master.statuses == [PutStatus.PUT_OK]
    assert rig.slave.end == end
    assert texts_of(rig.slave) == [b"one"]
    rig.fill()
    assert is_prefix(rig.slave, rig.master)
    assert rig.slave.end == rig.master.end
    assert set(rig.master.statuses) == {PutStatus.PUT_OK}
    assert rig.slave.state.epochs == rig.master.state.epochs
    status = rig.slave.slave.status() if rig.slave.slave else None
    assert status is not None
    assert (status.connected, status.behind_bytes, status.behind_ms) == (True, 0, 0)


def test_an_empty_slave_copies_everything(tmp_path: Path) -> None:
    """A new slave gets the log from its first byte, across segments."""
    rig = Rig(tmp_path, "ASYNC_MASTER")
    follow(rig.slave, rig.slave)  # no address for now
    for number in range(40):
        rig.master.send(bytes([number]) * 600)
    follow(rig.master, rig.slave)
    rig.drive(40)
    assert rig.slave.end == rig.master.end > 2 * SEGMENT_BYTES
    assert is_prefix(rig.slave, rig.master)
    assert texts_of(rig.slave) == texts_of(rig.master)


def test_a_slave_that_restarts_goes_on_where_it_was(tmp_path: Path) -> None:
    """Killed or stopped, a slave asks for the missing bytes only."""
    rig = Rig(tmp_path)
    rig.fill()
    before = rig.slave.end
    for stop in (rig.slave.close, rig.slave.kill):
        stop()
        rig.master.send(b"meanwhile")
        drive(rig.master)
        rig.slave.open()
        rig.drive()
        assert is_prefix(rig.slave, rig.master)
        assert rig.slave.end == rig.master.end > before
        assert rig.slave.slave is not None
        assert rig.slave.slave.status().received_bytes == rig.master.end - before
        before = rig.slave.end


@pytest.mark.parametrize("policy", ["WRITTEN", "FLUSHED"])
def test_only_what_the_policy_holds_is_acknowledged(tmp_path: Path, policy: str) -> None:
    """FLUSHED acknowledges synced bytes, WRITTEN those in the log."""
    rig = Rig(tmp_path, slave_ack_policy=policy)
    rig.drive()
    log = rig.slave.store.log
    rig.master.send(b"one")
    drive_replication(rig.master, rig.slave)
    assert rig.master.statuses == [PutStatus.PUT_OK]
    assert log.committed_offset == rig.master.end
    assert log.flushed_offset == (log.committed_offset if policy == "FLUSHED" else 0)


def test_a_slave_whose_sync_fails_acknowledges_nothing_more(tmp_path: Path) -> None:
    """FLUSHED: a failed sync fences the slave's log permanently; it reports that once and does not return."""
    rig = Rig(tmp_path, slave_ack_policy="FLUSHED")
    rig.fill(1)

    def refuse(operation: str, path: str) -> None:
        if operation == "sync" and "commitlog" in path:
            raise DiskError("sync failed", why="test")

    rig.disk.hook = refuse
    rig.master.statuses.clear()
    rig.master.send(b"two")
    drive_replication(rig.master, rig.slave)
    rig.disk.hook = None
    for _ in range(5):
        rig.clock.advance_ms(1000)
        drive_replication(rig.master, rig.slave)
    assert rig.master.statuses == [PutStatus.SLAVE_NOT_AVAILABLE]
    assert not rig.following()
    assert len(rig.slave.events("slave_disk_failed")) == 1
    rig.master.send(b"three")
    assert rig.master.statuses[1:] == [PutStatus.SLAVE_NOT_AVAILABLE]


def test_a_read_only_slave_leaves_at_once_and_comes_back(tmp_path: Path) -> None:
    """The slave's disk refuses writes; the master sees it leave and answers SLAVE_NOT_AVAILABLE without a wait."""
    rig = Rig(tmp_path)
    rig.fill(3)
    end = rig.slave.end
    rig.disk.hook = refuse_log_writes
    rig.master.send(b"two")
    rig.drive(3)
    assert not rig.following()
    assert rig.slave.end == end
    rig.master.statuses.clear()
    rig.master.send(b"three")
    assert rig.master.statuses == [PutStatus.SLAVE_NOT_AVAILABLE]
    for _ in range(10):
        rig.clock.advance_ms(1000)
        rig.drive(2)
        assert not rig.following()
    assert len(rig.slave.events("slave_disk_failed")) == 1
    assert len(rig.network.transports) == 1, "it does not even connect while its disk refuses"
    rig.disk.hook = None
    rig.clock.advance_ms(1000)
    rig.drive()
    assert rig.following()
    assert is_prefix(rig.slave, rig.master)
    assert rig.slave.end == rig.master.end
    assert len(rig.slave.events("slave_disk_works_again")) == 1
    rig.master.send(b"four")
    rig.drive()
    assert rig.master.statuses[-1] is PutStatus.PUT_OK


def test_bytes_that_changed_on_the_way_are_not_appended(tmp_path: Path) -> None:
    """A CRC that differs ends the connection; the slave goes on from its last good offset."""
    rig = Rig(tmp_path)
    rig.fill(3)
    end = rig.slave.end
    rig.network.transports[-1].spoil = lambda data: data[:-1] + bytes([data[-1] ^ 1])
    rig.master.send(b"precious" * 20)
    rig.drive(1)
    assert rig.slave.end == end
    assert any("CRC" in str(event["why"]) for event in rig.slave.events("slave_lost_master"))
    rig.drive()
    assert is_prefix(rig.slave, rig.master)
    assert texts_of(rig.slave)[-1] == b"precious" * 20


def test_a_cut_connection_is_made_again(tmp_path: Path) -> None:
    """However often it breaks, the log stays a prefix and catches up."""
    rig = Rig(tmp_path)
    for number in range(10):
        rig.master.send(bytes([65 + number]) * 900)
        rig.drive(number % 3)
        rig.network.cut()
        rig.drive(1)
        assert is_prefix(rig.slave, rig.master)
    rig.drive()
    assert rig.slave.end == rig.master.end
    assert texts_of(rig.slave) == texts_of(rig.master)


def test_a_silent_master_is_given_up(tmp_path: Path) -> None:
    """After ``ha_housekeeping_interval`` without a byte the slave connects again."""
    rig = Rig(tmp_path)
    rig.fill(1)
    assert len(rig.network.transports) == 1
    rig.clock.advance_ms(19_000)
    rig.slave.runner.step_all()
    assert rig.following()
    rig.clock.advance_ms(1000)
    rig.slave.runner.step_all()
    assert not rig.following()
    assert "sent nothing for 20000 ms" in str(rig.slave.events("slave_lost_master")[0]["why"])


def test_after_a_promise_nothing_of_the_old_epoch_enters(tmp_path: Path) -> None:
    """The log stays as it was when the promise was answered; the old master gets no acknowledgement."""
    rig = Rig(tmp_path)
    rig.fill(3)
    end = rig.slave.end
    rig.master.statuses.clear()
    rig.master.send(b"late")
    assert rig.slave.slave is not None
    epoch = next_promotion(rig.slave.state.promised_epoch)
    assert rig.slave.slave.promise(epoch, "n9.1")
    rig.drive()
    rig.clock.advance_ms(3000)
    rig.drive()
    assert rig.slave.end == end
    assert PutStatus.PUT_OK not in rig.master.statuses
    assert not rig.following()
    assert not rig.slave.slave.promise(epoch - 1, "n8.1")
    assert not rig.slave.slave.promise(epoch, "n8.1")
    assert rig.master.service is not None
    assert rig.master.service.is_fenced, "the slave's next HELLO tells the old master"


def promote(node: Node) -> None:
    assert node.slave is not None
    assert node.slave.promise(next_promotion(node.state.promised_epoch), node.state.new_owner())
    node.restart("SYNC_MASTER")


def test_an_old_master_is_cut_to_what_is_common_and_follows(tmp_path: Path) -> None:
    """Bytes that only the old master had were never confirmed: they go to the quarantine, are logged, and replaced."""
    rig = Rig(tmp_path)
    rig.fill(6)
    common = rig.slave.end
    follow(rig.slave, rig.slave)
    rig.network.cut()
    rig.drive()
    for number in range(14):  # into the next segment
        rig.master.send(b"lost" * 200 + bytes([number]))
    assert rig.master.statuses[-1] is PutStatus.SLAVE_NOT_AVAILABLE
    lost = rig.master.bytes()[common:].tobytes()
    promote(rig.slave)
    new, old = rig.slave, rig.master
    new.send(b"new")
    old.restart("SLAVE")
    follow(new, old)
    drive(new, old)
    assert old.reopens == 1
    [cut] = old.events("slave_log_cut")
    assert (cut["from_offset"], cut["to_offset"], cut["cut_bytes"]) == (common, common + len(lost), len(lost))
    assert old.slave is not None
    assert old.slave.status().waits_for_restart
    old.restart()
    follow(new, old)
    drive(new, old)
    assert old.end == new.end
    assert is_prefix(old, new)
    assert texts_of(old) == texts_of(new)
    assert texts_of(old)[-1] == b"new"
    assert old.state.epochs == new.state.epochs
    kept = b"".join(path.read_bytes() for path in sorted((old.root / "pocketmq" / "quarantine").iterdir()))
    assert b"lost" * 200 in kept
    assert kept.count(b"lost" * 200) == lost.count(b"lost" * 200)
    new.statuses.clear()
    new.send(b"both")
    drive(new, old)
    assert new.statuses == [PutStatus.PUT_OK]


def test_a_kill_between_the_order_and_the_cut_changes_nothing(tmp_path: Path) -> None:
    """The order stands until it is carried out: a slave killed before the cut is cut at its next start."""
    rig = Rig(tmp_path)
    rig.fill(6)
    common = rig.slave.end
    follow(rig.slave, rig.slave)
    rig.network.cut()
    rig.drive()
    rig.master.send(b"lost")
    promote(rig.slave)
    old, new = rig.master, rig.slave
    old.restart("SLAVE")
    follow(new, old)
    drive(new, old)
    old.kill()
    old.open()
    assert old.end == common
    assert old.state.cut_to is None
    old.kill()
    old.open()
    drive(new, old)
    assert is_prefix(old, new)


def test_what_was_confirmed_is_not_cut(tmp_path: Path) -> None:
    """A slave whose acknowledgements meant SEND_OK refuses a master without those messages, once, with the cure."""
    rig = Rig(tmp_path)
    rig.fill(6)
    confirmed = rig.slave.end
    other = Node(tmp_path / "other", rig.network, rig.clock, "SLAVE")
    follow(rig.master, other)
    follow(rig.slave, rig.slave)
    other_end = other.end
    promote(other)  # by force: it is empty
    other.send(b"usurper")
    follow(other, rig.slave)
    for _ in range(5):
        rig.clock.advance_ms(5000)
        drive(other, rig.slave)
    assert rig.slave.end == confirmed > other_end
    assert not rig.following()
    assert len(rig.slave.events("slave_refuses_master")) <= 1
    assert rig.slave.state.cut_to is None
    assert not rig.slave.state.drop
    assert texts_of(rig.slave) == texts_of(rig.master)


def test_a_shorter_history_is_refused_and_accepted_only_by_an_operators_word(tmp_path: Path) -> None:
    """A cut below the confirmed end needs ``accept_loss``, which counts once."""
    rig = Rig(tmp_path)
    rig.fill(3)
    third = Node(tmp_path / "third", rig.network, rig.clock, "SLAVE")
    third.master = "master"
    rig.master.changes["total_replicas"] = 3
    rig.master.restart()
    rig.drive()
    drive(rig.master, third, rig.slave)
    behind = third.end
    third.master = "nowhere"
    rig.network.cut()
    drive(third, rig.slave, rig.master)
    rig.master.send(b"confirmed")
    rig.drive()
    assert rig.master.statuses[-1] is PutStatus.PUT_OK
    assert rig.slave.end > behind
    promote(third)  # by force: it lacks confirmed messages
    third.send(b"instead")
    follow(third, rig.slave)
    for _ in range(3):
        rig.clock.advance_ms(5000)
        drive(third, rig.slave)
    [event] = rig.slave.events("slave_refuses_master")
    assert "may have been confirmed" in str(event["why"])
    assert "accept_loss" in str(event["why"])
    assert rig.slave.reopens == 0
    rig.slave.state.order_accept_loss()
    rig.clock.advance_ms(5000)
    drive(third, rig.slave)
    assert rig.slave.reopens == 1
    rig.slave.restart()
    follow(third, rig.slave)
    drive(third, rig.slave)
    assert texts_of(rig.slave) == texts_of(third)
    assert rig.slave.end == third.end
    assert not rig.slave.state.accept_loss


def test_a_slave_that_retention_has_overtaken_starts_anew(tmp_path: Path) -> None:
    """When the master no longer has the next bytes, the slave discards its log and copies from the oldest segment."""
    rig = Rig(tmp_path, "ASYNC_MASTER")
    rig.fill(3)
    follow(rig.slave, rig.slave)
    rig.network.cut()
    rig.drive()
    for number in range(30):
        rig.master.send(bytes([number]) * 900)
    drive(rig.master)
    rig.master.store.checkpoint()
    segments = rig.master.store.components.segments
    segments.remove_first()
    segments.remove_first()
    rig.master.store.consume_queues.correct_min(rig.master.store.log.min_offset)
    follow(rig.master, rig.slave)
    rig.drive()
    assert rig.slave.reopens == 1
    assert len(rig.slave.events("slave_restarts_from_oldest")) == 1
    rig.slave.restart()
    rig.drive()
    assert rig.slave.store.log.min_offset == rig.master.store.log.min_offset == 2 * SEGMENT_BYTES
    assert rig.slave.end == rig.master.end
    assert texts_of(rig.slave) == texts_of(rig.master)
    assert rig.slave.store.min_offset("T", 0) == rig.master.store.min_offset("T", 0) > 0


def test_bytes_of_an_epoch_never_precede_its_name(tmp_path: Path) -> None:
    """A slave killed while it copies an epoch's first bytes knows that epoch on its return."""
    rig = Rig(tmp_path)
    rig.fill(2)
    for _ in range(3):
        follow(rig.slave, rig.slave)
        rig.master.restart()
        starts = {entry.start_offset: entry for entry in rig.master.state.epochs.entries}
        rig.master.send(b"first of an epoch" * 10)
        follow(rig.master, rig.slave)
        rig.network.window_bytes = 300
        for _ in range(12):
            rig.drive(1)
            known = {entry.start_offset for entry in rig.slave.state.epochs.entries}
            assert all(start in known for start in starts if start < rig.slave.end)
        rig.network.window_bytes = 64 << 10
        rig.drive()
    assert rig.slave.state.epochs == rig.master.state.epochs


def test_a_slave_of_another_broker_is_refused(tmp_path: Path) -> None:
    """A log that shares no epoch stays unchanged, on both sides."""
    rig = Rig(tmp_path)
    rig.fill(2)
    stranger = Node(tmp_path / "stranger", rig.network, rig.clock, "ASYNC_MASTER")
    stranger.send(b"mine")
    stranger.restart("SLAVE")
    follow(rig.master, stranger)
    end = stranger.end
    drive(rig.master, stranger)
    assert stranger.end == end
    assert texts_of(stranger) == [b"mine"]
    [event] = stranger.events("slave_refused_by_master")
    assert "different_log" in str(event["why"])
