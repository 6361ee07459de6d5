"""The master's side: who follows, what is confirmed, who is sent away."""

import random
import socket
import threading
from pathlib import Path

import pytest

from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import Cause
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import ThreadRunner
from pocketmq.store.append_result import PutStatus
from pocketmq.store.errors import DiskError
from pocketmq.store.ha import wire
from pocketmq.store.ha.connection import HANDSHAKE_MS
from pocketmq.store.ha.epochs import Epoch, EpochTable
from pocketmq.store.ha.service import PEERS_MAX, HaService, port_of
from pocketmq.store.ha.state import HaFenced, HaState
from pocketmq.store.ha.transport import connect
from pocketmq.store.message_store import MessageStore
from tests.store.ha.master import HEARTBEAT_MS, Master
from tests.store.ha.transports import WINDOW_BYTES, ScriptedSlave, make_hello
from tests.store.log_fakes import HOST, SEGMENT_BYTES, Stepped, bodies, store_config

OK = PutStatus.PUT_OK
THREE = {"in_sync_replicas": 3, "total_replicas": 3}


# ---- the stream


def test_an_empty_slave_gets_the_whole_log_and_then_every_group(tmp_path: Path) -> None:
    """From the oldest segment on, blank ends included."""
    master = Master(tmp_path)
    while master.store.committed_offset < 3 * SEGMENT_BYTES:
        master.append(b"a" * 700)
    slave = master.following()
    assert slave.log == master.log_bytes()
    master.append(b"new")
    slave.receive()
    assert slave.log == master.log_bytes(), "the thread that appended has sent it"
    assert max(size for _, size, _, _ in slave.data) <= SEGMENT_BYTES
    master.close()


def test_a_slave_goes_on_where_it_ended(tmp_path: Path) -> None:
    """And nothing is sent before it has agreed."""
    master = Master(tmp_path)
    first = master.append(b"one")
    master.append(b"two")
    row = [(master.epoch.number, master.epoch.owner, 0)]
    slave = master.slave(end_offset=first, epochs=row)
    assert slave.welcome is not None
    assert (slave.welcome.start_offset, slave.welcome.cut_to) == (first, None)
    assert not slave.data
    slave.ack(first)
    master.settle()
    slave.receive()
    assert slave.log == master.log_bytes(first)
    master.close()


def test_frames_tell_where_the_master_is(tmp_path: Path) -> None:
    """Its end, what is confirmed, and its clock."""
    master = Master(tmp_path)
    slave = master.following()
    end = master.append(b"one")
    slave.receive()
    slave.ack()
    master.settle()
    second = master.append(b"two")
    slave.receive()
    assert slave.data == [(0, end, end, 0), (end, second - end, second, end)]
    assert slave.echo_ms == master.clock.now_ms()
    master.close()


def test_an_idle_stream_beats(tmp_path: Path) -> None:
    """Every ``ha_send_heartbeat_interval``, and it carries what is confirmed."""
    master = Master(tmp_path)
    slave = master.following()
    end = master.append(b"one")
    slave.receive()
    slave.ack()
    master.settle()
    assert not slave.heartbeats
    master.clock.advance_ms(HEARTBEAT_MS)
    master.settle()
    slave.receive()
    assert slave.heartbeats == [wire.Heartbeat(end, end, master.clock.now_ms())]
    master.close()


def test_only_committed_bytes_are_sent(tmp_path: Path) -> None:
    """With a write-buffer pool a slave gets what the commit has written."""
    master = Master(tmp_path, transient_store_pool_enable=True, transient_store_pool_size=3)
    slave = master.following()
    master.store.append(bodies(b"one"))
    slave.receive()
    assert not slave.log
    master.store.log.commit()
    slave.receive()
    assert slave.log == master.log_bytes()
    assert slave.log
    master.close()


def test_a_slow_slave_holds_neither_memory_nor_others(tmp_path: Path) -> None:
    """Its socket takes nothing: the other one is served, and what waits for it stays in the log."""
    master = Master(tmp_path, total_replicas=3)
    slow = master.following(window_bytes=600, node_id="slow")
    fast = master.following("10.0.0.3:5000", node_id="fast")
    ends = []
    for _ in range(60):
        ends.append(master.send(b"x" * 300))
        fast.receive()
        fast.ack()
        master.settle(1)
    assert master.told == [(end, OK) for end in ends]
    held = next(each for each in master.ha._streams if each.node_id == "slow")
    assert held._transfer is not None
    assert sum(map(len, held._transfer._pending)) <= SEGMENT_BYTES + wire.DATA_HEAD_BYTES
    for _ in range(400):
        slow.receive()
        master.settle(1)
    slow.receive()
    assert slow.log == fast.log == master.log_bytes()
    master.close()


def test_a_slave_that_retention_overtakes_is_sent_away_and_starts_anew(tmp_path: Path) -> None:
    """One event, and its next hello starts at the oldest byte."""
    master = Master(tmp_path)
    while master.store.committed_offset < 4 * SEGMENT_BYTES:
        master.append(b"a" * 700)
    slave = master.slave()
    master.store.components.segments.remove_first()
    slave.ack(0)
    master.settle()
    slave.receive()
    assert slave.is_closed
    assert [event["event"] for event in master.events("slave_disconnected")] == ["slave_disconnected"]
    again = master.slave()
    assert again.welcome is not None
    assert (again.welcome.start_offset, again.welcome.restart) == (SEGMENT_BYTES, True)
    master.close()


# ---- what a send is told


def test_a_send_waits_for_one_slave(tmp_path: Path) -> None:
    """SYNC_MASTER with the defaults: as RocketMQ 4.9."""
    master = Master(tmp_path)
    slave = master.following()
    end = master.send(b"one")
    assert not master.told
    slave.receive()
    slave.ack(end - 1)
    master.settle()
    assert not master.told, "not all of it"
    slave.ack()
    master.settle()
    assert master.told == [(end, OK)]
    assert master.ha.status().confirmed_offset == end
    master.close()


def test_without_a_slave_a_send_is_told_so_at_once(tmp_path: Path) -> None:
    """Before one came, after it left, and while it has not agreed on its start."""
    master = Master(tmp_path)
    ends = [master.send(b"one")]
    joining = master.slave()
    ends.append(master.send(b"two"))
    joining.transport.close()
    master.settle()
    slave = master.following()
    slave.transport.close()
    master.settle()
    ends.append(master.send(b"three"))
    assert master.told == [(end, PutStatus.SLAVE_NOT_AVAILABLE) for end in ends]
    assert len(master.bodies()) == 3, "they are stored"
    master.close()


def test_a_send_that_does_not_wait_is_not_held_up(tmp_path: Path) -> None:
    """RocketMQ's WAIT=false; and a master that is asynchronous."""
    master = Master(tmp_path / "sync")
    end = master.send(b"one", wait=False)
    assert master.told == [(end, OK)]
    master.close()
    master = Master(tmp_path / "async", broker_role="ASYNC_MASTER")
    slave = master.following()
    end = master.send(b"one")
    assert master.told == [(end, OK)]
    slave.receive()
    assert slave.log == master.log_bytes()
    slave.ack()
    master.settle()
    assert master.ha.status().confirmed_offset == 0, "nothing was promised"
    master.close()


def test_a_silent_slave_costs_each_send_its_own_timeout(tmp_path: Path) -> None:
    """And the message stays stored."""
    master = Master(tmp_path)
    master.following()
    first = master.send(b"one")
    master.clock.advance_ms(1000)
    second = master.send(b"two")
    master.clock.advance_ms(2000)
    master.settle()
    assert master.told == [(first, PutStatus.FLUSH_SLAVE_TIMEOUT)]
    master.clock.advance_ms(1000)
    master.settle()
    assert master.told[1:] == [(second, PutStatus.FLUSH_SLAVE_TIMEOUT)]
    master.close()


def test_a_slave_too_far_behind_is_not_waited_for(tmp_path: Path) -> None:
    """``ha_slave_fallbehind_max``; one event when it falls behind, one when it is back."""
    master = Master(tmp_path, ha_slave_fallbehind_max=1000)
    slave = master.following()

    def a_second_later() -> None:
        master.settle()
        master.clock.advance_ms(1000)
        master.settle()

    a_second_later()
    master.send(b"x" * 1000)
    assert master.told[0][1] is PutStatus.SLAVE_NOT_AVAILABLE
    a_second_later()
    a_second_later()
    slave.receive()
    slave.ack()
    a_second_later()
    end = master.send(b"two")
    slave.receive()
    slave.ack()
    master.settle()
    assert master.told[1:] == [(end, OK)]
    assert [event["event"] for event in master.events("slave_fell_behind", "slave_in_sync")] == [
        "slave_in_sync",
        "slave_fell_behind",
        "slave_in_sync",
    ]
    master.close()


def test_two_slaves_can_be_asked_for(tmp_path: Path) -> None:
    """``in_sync_replicas`` 3: the second acknowledgement counts, and one slave alone is not enough to wait for."""
    master = Master(tmp_path, **THREE)
    first = master.following(node_id="one")
    lonely = master.send(b"zero")
    assert master.told == [(lonely, PutStatus.SLAVE_NOT_AVAILABLE)]
    second = master.following("10.0.0.3:5000", node_id="two")
    end = master.send(b"one")
    first.receive()
    first.ack()
    master.settle()
    assert len(master.told) == 1
    second.receive()
    second.ack()
    master.settle()
    assert master.told[1:] == [(end, OK)]
    assert master.ha.status().in_sync_count == 3
    master.close()


def test_confirmations_die_with_their_connection(tmp_path: Path) -> None:
    """What a slave had that is gone does not help the one that is left to confirm."""
    master = Master(tmp_path, **THREE)
    first = master.following(node_id="one")
    second = master.following("10.0.0.3:5000", node_id="two")
    end = master.send(b"one")
    first.receive()
    first.ack()
    master.settle()
    first.transport.close()
    master.settle()
    second.receive()
    second.ack()
    master.settle()
    assert not master.told
    row = [(master.epoch.number, master.epoch.owner, 0)]
    back = master.following(node_id="one", end_offset=end, epochs=row)
    master.settle()
    assert back.welcome is not None
    assert master.told == [(end, OK)], "it is back and still has it"
    master.close()


def test_disk_and_slaves_are_waited_for_together(tmp_path: Path) -> None:
    """Under SYNC_FLUSH as well: neither alone is enough."""
    master = Master(tmp_path, flush_disk_type="SYNC_FLUSH")
    slave = master.following()
    end = master.send(b"one")
    slave.receive()
    slave.ack()
    receiver = next(worker for worker in master.runner.workers if worker.name.startswith("ha-receive"))
    receiver.step()
    assert master.ha.status().confirmed_offset == end
    assert not master.told, "not on disk yet"
    master.settle()
    assert master.told == [(end, OK)]
    second = master.send(b"two")
    master.settle()
    assert master.store.flushed_offset == second
    assert len(master.told) == 1, "on disk, but not on the slave"
    slave.transport.close()
    master.settle()
    third = master.send(b"three")
    assert len(master.told) == 1, "RocketMQ waits for the disk's verdict as well"
    master.settle()
    assert master.told[1:] == [(third, PutStatus.SLAVE_NOT_AVAILABLE)]
    master.close()


def test_a_store_without_replicas_answers_as_before(tmp_path: Path) -> None:
    """After the service has stopped, too: nothing of it stays."""
    master = Master(tmp_path)
    committed = list(master.store.log.on_committed)
    master.ha.stop()
    assert master.store.log.on_committed == committed[:-1]
    master.store.close()


# ---- refusals


@pytest.mark.parametrize(
    ("hello", "code"),
    [
        ({"cluster": "other"}, "other_cluster"),
        ({"broker_name": "other"}, "other_broker_name"),
        ({"segment_bytes": 4096}, "other_segment_size"),
        ({"crc": "md5"}, "other_checksum"),
        ({"end_offset": 10}, "different_log"),
    ],
)
def test_a_slave_that_does_not_belong_is_refused_with_one_event(
    tmp_path: Path, hello: dict[str, object], code: str
) -> None:
    """It is told why, and who follows already notices nothing."""
    master = Master(tmp_path, total_replicas=3)
    slave = master.following()
    wrong = master.slave("10.9.9.9:1", WINDOW_BYTES, node_id="wrong", **hello)
    assert wrong.refused is not None
    assert wrong.refused.code == code
    wrong.receive()
    assert wrong.is_closed
    assert [why.split(":")[0] for why in master.refusals] == [code]
    end = master.send(b"one")
    slave.receive()
    slave.ack()
    master.settle()
    assert master.told == [(end, OK)]
    assert len(master.ha.status().slaves) == 1
    master.close()


def test_a_slave_with_a_larger_offset_is_refused(tmp_path: Path) -> None:
    """In the master's own epoch nobody can have more than the master."""
    master = Master(tmp_path)
    end = master.append(b"one")
    slave = master.slave(end_offset=end + 1, epochs=[(master.epoch.number, master.epoch.owner, 0)])
    assert slave.refused is not None
    assert slave.refused.code == "larger_offset"
    assert len(master.refusals) == 1
    master.close()


def test_more_slaves_than_a_promotion_counts_on_are_refused(tmp_path: Path) -> None:
    """``total_replicas``; an asynchronous master takes more."""
    master = Master(tmp_path / "sync")
    master.following(node_id="one")
    other = master.slave("10.0.0.3:5000", node_id="two")
    assert other.refused is not None
    assert other.refused.code == "too_many_slaves"
    master.close()
    master = Master(tmp_path / "async", broker_role="ASYNC_MASTER")
    master.following(node_id="one")
    assert master.following("10.0.0.3:5000", node_id="two").welcome is not None
    master.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        wire.PREAMBLE + b"\x00\x00\x00\x05\x06abcd",
        wire.PREAMBLE + b"\x7f\xff\xff\xff\x01",
        wire.PREAMBLE + wire._framed(wire.HELLO, b"\xc1"),
        b"\x00" * 8,
    ],
)
def test_a_stranger_is_sent_away_with_one_event(tmp_path: Path, data: bytes) -> None:
    """Whatever it says; RocketMQ's bare protocol is one of these, unless it is allowed."""
    master = Master(tmp_path)
    stranger = ScriptedSlave(master.listener, "203.0.113.9:1")
    stranger.raw(data)
    master.settle()
    assert stranger.transport.receive_into(memoryview(bytearray(10)), 0) == 0
    assert len(master.refusals) == 1
    assert master.ha.status().refused == 1
    assert not master.ha._peers
    master.close()


def test_a_silent_stranger_is_sent_away_after_five_seconds(tmp_path: Path) -> None:
    """Also one that says half of what it has to."""
    master = Master(tmp_path)
    silent = ScriptedSlave(master.listener)
    half = ScriptedSlave(master.listener)
    half.raw(wire.PREAMBLE + wire.encode_hello(make_hello())[:20])
    master.settle()
    no_answer = master.slave()
    assert no_answer.welcome is not None
    master.settle()
    master.clock.advance_ms(HANDSHAKE_MS - 1)
    master.settle()
    assert not master.refusals
    master.clock.advance_ms(1)
    master.settle()
    assert len(master.refusals) == 3
    assert all(f"within {HANDSHAKE_MS} ms" in why for why in master.refusals)
    assert not master.ha._peers
    assert silent.transport.sends.is_cut
    master.close()


def test_a_crowd_of_strangers_is_bounded(tmp_path: Path) -> None:
    """More than fit are closed as they come, told of once a second; a slave that follows is served."""
    master = Master(tmp_path)
    slave = master.following()
    strangers = [ScriptedSlave(master.listener) for _ in range(2 * PEERS_MAX)]
    master.settle(2 * PEERS_MAX + 3)
    assert len(master.ha._peers) == PEERS_MAX
    assert sum(stranger.transport.sends.is_cut for stranger in strangers) == PEERS_MAX + 1
    assert len(master.refusals) == 1
    end = master.send(b"one")
    slave.receive()
    slave.ack()
    master.settle()
    assert master.told == [(end, OK)]
    master.close()


@pytest.mark.parametrize("offset", [-1, 1])
def test_an_impossible_acknowledgement_ends_the_connection(tmp_path: Path, offset: int) -> None:
    """One beyond what was sent confirms nothing, nor does one that goes back."""
    master = Master(tmp_path)
    slave = master.following()
    first = master.send(b"one")
    slave.receive()
    slave.ack()
    master.settle()
    end = master.send(b"two")
    slave.receive()
    slave.ack(first - 1 if offset < 0 else end + 1)
    master.settle()
    assert master.told == [(first, OK)]
    slave.receive()
    assert slave.is_closed
    assert len(master.events("slave_disconnected")) == 1
    assert not master.ha.is_slave_ok(end)
    master.close()


def test_a_slave_that_starts_elsewhere_is_sent_away(tmp_path: Path) -> None:
    """It must agree to exactly the offset of its welcome."""
    master = Master(tmp_path)
    master.append(b"one")
    slave = master.slave()
    slave.ack(1)
    master.settle()
    assert "the slave starts at 1, not at 0" in master.refusals[0]
    master.close()


def test_a_connection_that_brings_nothing_is_closed(tmp_path: Path) -> None:
    """After ``ha_housekeeping_interval``; answers to heartbeats keep it."""
    master = Master(tmp_path)
    slave = master.following()
    for _ in range(8):
        master.clock.advance_ms(HEARTBEAT_MS)
        master.settle()
        slave.receive()
        slave.ack()
        master.settle()
    assert not master.events("slave_disconnected")
    master.clock.advance_ms(20_000)
    master.settle()
    assert "nothing came for 20000 ms" in str(master.events("slave_disconnected")[0]["why"])
    master.close()


def test_a_slave_that_connects_again_takes_the_place_of_its_old_connection(tmp_path: Path) -> None:
    """The master may not have noticed that the old one is dead."""
    master = Master(tmp_path)
    old = master.following()
    new = master.following()
    assert new.welcome is not None
    old.receive()
    assert old.is_closed
    end = master.send(b"one")
    new.receive()
    new.ack()
    master.settle()
    assert master.told == [(end, OK)]
    assert len(master.ha.status().slaves) == 1
    master.close()


# ---- RocketMQ's slaves


def report(slave: ScriptedSlave, offset: int) -> None:
    slave.raw(offset.to_bytes(8, "big"))


def frames(slave: ScriptedSlave) -> list[tuple[int, bytes]]:
    data = bytearray(1 << 20)
    count = slave.transport.receive_into(memoryview(data), 0) or 0
    out, at = [], 0
    while at < count:
        offset, size = int.from_bytes(data[at : at + 8], "big"), int.from_bytes(data[at + 8 : at + 12], "big")
        out.append((offset, bytes(data[at + 12 : at + 12 + size])))
        at += 12 + size
    return out


def test_a_slave_of_rocketmqs_follows_from_the_last_file_and_is_never_counted(tmp_path: Path) -> None:
    """Frames of 12 + at most 32 KiB, heartbeats with the next offset; SEND_OK never rests on it."""
    master = Master(tmp_path, ha_rocketmq_allowed_slaves="10.0.0.0/24")
    while master.store.committed_offset < 2 * SEGMENT_BYTES:
        master.append(b"a" * 700)
    start = 2 * SEGMENT_BYTES
    slave = ScriptedSlave(master.listener, "10.0.0.7:5000")
    report(slave, 0)
    master.settle()
    assert b"".join(body for _, body in frames(slave)) == master.log_bytes(start)
    before = master.store.committed_offset
    end = master.send(b"one")
    assert frames(slave) == [(before, master.log_bytes(before))]
    report(slave, end)
    master.settle()
    assert master.told == [(end, PutStatus.SLAVE_NOT_AVAILABLE)]
    status = master.ha.status()
    assert [(each.protocol, each.ack_offset, each.is_in_sync, each.behind_ms) for each in status.slaves] == [
        ("rocketmq", end, False, 0)
    ]
    assert not master.state.slaves, "nor is it asked after a crash"
    master.clock.advance_ms(HEARTBEAT_MS)
    master.settle()
    assert frames(slave) == [(end, b"")]
    report(slave, end + 1)
    master.settle()
    assert "greater than local commitLog offset" in str(master.events("slave_disconnected")[0]["why"])
    master.close()


@pytest.mark.parametrize("allowed", ["", "10.0.0.8", "2001:db8::/32"])
def test_rocketmqs_protocol_needs_leave(tmp_path: Path, allowed: str) -> None:
    """Without it anyone who sends eight bytes would be a slave."""
    master = Master(tmp_path, ha_rocketmq_allowed_slaves=allowed)
    slave = ScriptedSlave(master.listener, "10.0.0.7:5000")
    report(slave, 0)
    master.settle()
    assert not frames(slave)
    assert "ha_rocketmq_allowed_slaves" in master.refusals[0]
    master.close()


@pytest.mark.parametrize("offset", [1 << 40, 1])
def test_a_report_outside_of_the_log_is_refused(tmp_path: Path, offset: int) -> None:
    """RocketMQ leaves such a slave waiting for ever."""
    master = Master(tmp_path, ha_rocketmq_allowed_slaves="10.0.0.7")
    while master.store.committed_offset < 3 * SEGMENT_BYTES:
        master.append(b"a" * 700)
    master.store.components.segments.remove_first()
    slave = ScriptedSlave(master.listener, "10.0.0.7:5000")
    report(slave, offset)
    master.settle()
    assert f"a report of {offset}" in master.refusals[0]
    master.close()


# ---- epochs, fences, what is remembered


def test_every_start_opens_an_epoch_at_the_end_of_the_log(tmp_path: Path) -> None:
    """Also when nothing was stored since the last one."""
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
    """They get an epoch of their own, so it is known when it comes back."""
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
    """Durably; who waits is told that nobody knows, and so is who comes."""
    master = Master(tmp_path, total_replicas=3)
    fenced: list[object] = []
    master.ha.on_fenced = fenced.append
    master.following(node_id="one")
    waiting = master.send(b"one")
    messenger = master.slave("10.0.0.3:5000", node_id="two", promised=(1_000_000, "two.x"))
    assert messenger.refused is not None
    assert messenger.refused.code == "higher_epoch"
    assert master.told == [(waiting, PutStatus.SERVICE_NOT_AVAILABLE)]
    for wait in (True, False):  # appended before the fence, acknowledged behind it
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
    """After a crash the master must know whom to ask for what it lost."""
    master = Master(tmp_path)
    slave = master.slave()
    assert slave.welcome is not None
    seen = HaState(master.store.file_system, master.store.paths, master.clock, random.Random(1).randbytes)
    seen.load()
    assert seen.slaves == {"slave1": 0}
    assert not seen.clean
    master.close()


def test_what_was_confirmed_is_remembered(tmp_path: Path) -> None:
    """About once a second, and at the end."""
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
    """The old one lacks what is confirmed from now on: it must not be promoted, and is not waited for."""
    master = Master(tmp_path)
    old = master.following(node_id="old")
    old.transport.close()
    master.settle()
    master.following(node_id="new")
    assert master.state.slaves.keys() == {"new"}
    assert master.events("slave_replaced")[0]["gone"] == ["old"]
    master.close()


# ---- what is seen


def test_the_status_tells_lag_in_bytes_and_ms(tmp_path: Path) -> None:
    """A slave's lag is the age of the newest data that it has confirmed."""
    master = Master(tmp_path)
    slave = master.following(broker_id=7, ack_policy="FLUSHED")
    first = master.append(b"one")
    slave.receive()
    slave.ack()
    master.settle()
    master.clock.advance_ms(400)
    end = master.append(b"two")
    status = master.ha.status()
    (seen,) = status.slaves
    assert (seen.broker_id, seen.node_id, seen.address, seen.protocol) == (7, "slave1", "10.0.0.2:5000", "pocketmq")
    assert (seen.ack_offset, seen.behind_bytes, seen.behind_ms) == (first, end - first, 400)
    assert (seen.is_in_sync, seen.connected_ms, seen.sent_bytes, seen.ack_policy) == (True, 400, end, "FLUSHED")
    assert (status.role, status.epoch, status.end_offset, status.in_sync_count) == ("SYNC_MASTER", 1, end, 2)
    slave.receive()
    slave.ack()
    master.settle()
    assert [(each.behind_bytes, each.behind_ms) for each in master.ha.status().slaves] == [(0, 0)]
    master.close()


def test_the_port_is_the_brokers_plus_one_unless_set(tmp_path: Path) -> None:
    """RocketMQ's rule; -1 lets the system choose."""
    assert port_of(store_config(tmp_path), 10911) == 10912
    assert port_of(store_config(tmp_path, ha_listen_port=7), 10911) == 7
    assert port_of(store_config(tmp_path, ha_listen_port=-1), 10911) == -1


@pytest.mark.slow
def test_the_same_over_real_sockets_and_threads(tmp_path: Path) -> None:
    """Every worker runs by itself: a slave catches up, sends are confirmed, a stop ends everything soon."""
    others = set(threading.enumerate())
    clock, runner, log = SystemClock(), ThreadRunner(), CapturedLog()
    config = store_config(tmp_path, broker_role="SYNC_MASTER", mapped_file_size_commit_log=1 << 20)
    store = MessageStore(config, clock=clock, runner=runner, log=log)
    store.store_host = HOST
    store.open()
    state = HaState(store.file_system, store.paths, clock, random.Random(1).randbytes)
    state.load()
    ha = HaService(config, store, state, cluster="C", broker_name="b", clock=clock, runner=runner, log=log)
    port = ha.open_port("127.0.0.1", -1)
    ha.start()
    for _ in range(30):
        store.append(bodies(b"x" * 100_000))
    transport = connect(f"127.0.0.1:{port}", 5000)
    received = bytearray()

    def follow() -> None:
        decoder = wire.FrameDecoder(wire.FROM_MASTER)
        transport.send([wire.PREAMBLE, wire.encode_hello(make_hello(segment_bytes=1 << 20))])
        while count := transport.receive_into(decoder.buffer(), 10_000):
            decoder.received(count)
            while (message := decoder.next()) is not None:
                if isinstance(message, wire.Data):
                    received.extend(message.body)
                transport.send([wire.encode_ack(wire.Ack(len(received), 0, 0))])

    follower = threading.Thread(target=follow)
    follower.start()
    statuses: list[PutStatus] = []
    for number in range(200):
        told = threading.Event()
        end = store.append(bodies(b"%d" % number)).end_offset

        def done(status: PutStatus, told: threading.Event = told) -> None:
            statuses.append(status)
            told.set()

        while number == 0 and not ha.is_slave_ok(end):
            threading.Event().wait(0.005)
        store.acknowledge(end, True, done)
        assert told.wait(30)
    assert statuses == [OK] * 200
    stranger = socket.create_connection(("127.0.0.1", port))
    stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
    assert stranger.recv(10) == b""
    stranger.close()
    ha.stop()
    follower.join(30)
    transport.close()
    assert not follower.is_alive()
    assert received == store.log.read(0, store.committed_offset).tobytes()
    assert [thread.name for thread in set(threading.enumerate()) - others if thread.name.startswith("ha-")] == []
    store.close()
