"""A master that lost power asks its slaves for its lost bytes, and does not lead without an answer."""

from pathlib import Path
from typing import Any

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.epochs import highest_allowed, next_promotion
from pocketmq.store.append_result import PutStatus
from pocketmq.store.ha import wire
from pocketmq.store.ha.crowd import PEERS_MAX
from pocketmq.store.ha.environment import HaEnvironment
from pocketmq.store.ha.recover import HaRecoveryNeeded, _Recovery
from pocketmq.store.ha.state import HaFenced
from tests.store.ha.master import Master
from tests.store.ha.nodes import Network, Node, drive, follow, is_prefix, texts_of
from tests.store.ha.transports import MemoryListener, ScriptedSlave
from tests.store.log_fakes import SEGMENT_BYTES


class Group:
    """A master and slaves; their number sets ``total_replicas``."""

    def __init__(self, tmp_path: Path, slaves: int = 1, role: str = "SYNC_MASTER", **changes: Any) -> None:
        self.network = Network()
        self.clock = ManualClock()
        changes = {"total_replicas": slaves + 1, **changes}
        self.master = Node(tmp_path / "master", self.network, self.clock, role, **changes)
        self.slaves = tuple(
            Node(tmp_path / f"slave{number}", self.network, self.clock, "SLAVE", **changes) for number in range(slaves)
        )
        follow(self.master, *self.slaves)
        self.master.others = self.slaves
        self.drive()

    def drive(self, rounds: int = 12) -> None:
        drive(self.master, *self.slaves, rounds=rounds)

    def send(self, count: int, first: int = 0, size_bytes: int = 600) -> None:
        for number in range(first, first + count):
            self.master.send(str(number).encode().ljust(size_bytes, b"."))
            self.drive(3)

    def lose_power_behind(self, count: int) -> None:
        """Remember the disk, send more, have it confirmed, lose power."""
        self.master.remember_disk()
        self.send(count, 1000)
        assert set(self.master.statuses) == {PutStatus.PUT_OK}
        self.master.lose_power()


def test_what_was_confirmed_comes_back_from_a_slave(tmp_path: Path) -> None:
    """The master had lost several segments; it opens its epoch behind the slave's end, and both continue."""
    group = Group(tmp_path)
    group.send(4)
    group.lose_power_behind(30)
    group.master.open()
    [slave] = group.slaves
    assert group.master.recovered_bytes > 2 * SEGMENT_BYTES
    assert group.master.end == slave.end
    last = group.master.state.epochs.last
    assert last is not None
    assert last.start_offset == slave.end
    group.clock.advance_ms(5000)
    group.drive()
    assert is_prefix(slave, group.master)
    assert texts_of(group.master) == texts_of(slave)
    assert len(texts_of(group.master)) == 34
    group.master.statuses.clear()
    group.send(1)
    assert group.master.statuses == [PutStatus.PUT_OK]
    assert slave.reopens == 0


def test_without_a_slave_the_start_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """The error names the range and the cure; the log stays unchanged, and a later start with the slave works."""
    group = Group(tmp_path)
    group.send(3)
    group.clock.advance_ms(6000)
    group.drive()
    group.lose_power_behind(2)
    group.master.others = ()
    with pytest.raises(HaRecoveryNeeded) as caught:
        group.master.open()
    assert "0 of 1 slaves" in caught.value.why
    assert group.slaves[0].state.node_id in caught.value.why
    assert "--accept-loss" in caught.value.hint
    group.master.others = group.slaves
    group.clock.advance_ms(5000)
    group.master.open()
    assert texts_of(group.master) == texts_of(group.slaves[0])
    assert len(texts_of(group.master)) == 5


def test_an_accepted_loss_starts_without_the_slave(tmp_path: Path) -> None:
    """With ``accept_loss`` the master continues from its own end, logs the consequences, and asks no more."""
    group = Group(tmp_path)
    group.send(3)
    group.lose_power_behind(2)
    group.master.others = ()
    group.master.changes["accept_loss"] = True
    group.master.open()
    [event] = group.master.events("recovery_loss_accepted")
    assert event["missing"] == [group.slaves[0].state.node_id]
    assert group.master.state.slaves == {}
    assert len(texts_of(group.master)) == 3


@pytest.mark.parametrize("case", ["killed", "stopped", "never followed"])
def test_no_slave_is_needed_when_nothing_can_be_lost(tmp_path: Path, case: str) -> None:
    """A killed process on a running machine, a clean stop, a master without slaves: they simply start."""
    group = Group(tmp_path, slaves=0 if case == "never followed" else 1, role="ASYNC_MASTER")
    group.send(3)
    group.master.others = ()
    if case == "killed":
        group.master.kill()
    elif case == "stopped":
        group.master.close()
    else:
        group.master.remember_disk()
        group.master.lose_power()
    if case == "stopped":
        group.master.boot = "boot2"
    group.master.open()
    assert group.master.recovered_bytes == -1
    assert len(texts_of(group.master)) == 3


@pytest.mark.parametrize("present", [0, 1, 2])
def test_enough_slaves_must_answer_to_know_everything(tmp_path: Path, present: int) -> None:
    """With one confirmation out of two slaves both must answer: either may be the one that confirmed."""
    group = Group(tmp_path, slaves=2)
    group.send(3)
    group.lose_power_behind(2)
    group.master.others = group.slaves[:present]
    if present < 2:
        with pytest.raises(HaRecoveryNeeded, match=f"{present} of 2"):
            group.master.open()
    else:
        group.master.open()
        assert len(texts_of(group.master)) == 5


def test_the_most_advanced_slave_is_asked(tmp_path: Path) -> None:
    """Bytes that only one of two slaves has return as well."""
    group = Group(tmp_path, slaves=2)
    group.send(3)
    group.master.remember_disk()
    ahead, behind = group.slaves
    follow(ahead, behind)  # nowhere
    group.drive()
    group.send(4, 1000)
    assert ahead.end > behind.end
    group.master.lose_power()
    follow(group.master, behind)
    group.clock.advance_ms(5000)
    group.master.open()
    assert group.master.end == ahead.end
    group.clock.advance_ms(5000)
    group.drive()
    assert behind.end == ahead.end == group.master.end


def test_a_slave_with_the_same_log_is_answer_enough(tmp_path: Path) -> None:
    """A power loss without lost bytes needs a slave's answer, and no bytes."""
    group = Group(tmp_path)
    group.send(3)
    group.master.remember_disk()
    group.master.lose_power()
    group.master.open()
    assert group.master.recovered_bytes == 0


def test_a_hole_in_the_log_is_filled_from_the_slave(tmp_path: Path) -> None:
    """Pages reach the disk in any order: the log is cut before the first missing one, and fetched from there; the cut
    bytes are copied.
    """
    group = Group(tmp_path)
    group.send(3)
    hole = group.master.end
    group.lose_power_behind(6)
    whole = group.slaves[0].bytes()
    path = group.master.root / "commitlog" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[: len(whole)] = bytes(whole)
    data[hole : hole + 900] = bytes(900)
    path.write_bytes(bytes(data))
    group.master.open()
    assert group.master.recovered_bytes > 900
    assert bytes(group.master.bytes()) == bytes(whole)
    assert group.master.store.log.damaged == []
    assert any((group.master.root / "pocketmq" / "quarantine").iterdir())


def test_an_old_master_learns_from_its_slave_that_it_was_replaced(tmp_path: Path) -> None:
    """A slave that promised a newer epoch fences the master that asks it; the master does not lead."""
    group = Group(tmp_path)
    group.send(3)
    group.lose_power_behind(2)
    [slave] = group.slaves
    assert slave.slave is not None
    epoch = next_promotion(slave.state.promised_epoch)
    assert slave.slave.promise(epoch, "n9.1")
    group.clock.advance_ms(5000)
    with pytest.raises(HaFenced):
        group.master.open()
    assert group.master.state.fenced_by is not None
    assert group.master.state.fenced_by.epoch == epoch
    assert len(group.master.events("fenced_by_slave")) == 1


def test_strangers_do_not_count_as_slaves(tmp_path: Path) -> None:
    """Garbage, another cluster and an unknown node are refused or not counted, with one event each."""
    group = Group(tmp_path)
    group.send(3)
    group.lose_power_behind(2)
    unknown = Node(tmp_path / "unknown", group.network, group.clock, "SLAVE", total_replicas=2)
    follow(group.master, unknown)
    group.master.others = (unknown,)
    sent: list[bool] = []

    def pump(wait_ms: float) -> None:
        if not sent and group.master.name in group.network.listeners:
            sent.append(True)
            for data in (b"GET / HTTP/1.1\r\n\r\n", wire.PREAMBLE + b"\xff" * 50):
                group.network.connect(group.master.name, 0).send([data])
        drive(unknown, rounds=1)
        group.clock.advance_ms(wait_ms)

    group.master.pump = pump
    with pytest.raises(HaRecoveryNeeded):
        group.master.open()
    assert len(group.master.events("ha_connection_refused")) == 2
    [answer] = group.master.events("recovery_slave_answered")
    assert answer["is_known"] is False


def test_strangers_keep_no_slave_out_and_their_word_and_bytes_count_for_nothing(tmp_path: Path) -> None:
    """While the master asks: silent ones make room, as do those that it does not know. The word of a slave counts, up
    to two promotions ahead."""
    master = Master(tmp_path)
    master.following(node_id="known")
    environment = HaEnvironment(master.store, master.state, "C", "b", master.clock, master.runner, master.log)
    recovery = _Recovery(environment, MemoryListener())
    listener = MemoryListener()

    def connect(number: int, **hello: object) -> ScriptedSlave:
        slave = ScriptedSlave(listener, f"10.0.{number}.1:5")
        if hello:
            slave.hello(**hello)
        transport = listener.accept(0)
        assert transport is not None
        recovery._accept(transport, master.clock.monotonic_ns())
        if hello:
            recovery._hear(recovery.peers[-1], master.clock.monotonic_ns())
        return slave

    for number in range(2 * PEERS_MAX):
        connect(number)
    for number in range(2 * PEERS_MAX):
        connect(100 + number, node_id=f"e{number}", end_offset=1 << 40, promised=(1 << 52, "e.1"))
    assert len(recovery.peers) == PEERS_MAX
    assert recovery.answers == {}
    assert recovery.higher == (0, "")
    connect(200, node_id="known")
    assert recovery.answers.keys() == {"known"}
    connect(201, node_id="known", promised=(1 << 52, "known.1"))
    assert recovery.higher == (highest_allowed(master.epoch.number), "known.1")
    recovery.close()
    master.close()
