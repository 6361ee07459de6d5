"""The master's side: followers, confirmations, refusals."""

import random
import socket
import threading
from pathlib import Path

import pytest

from pocketmq.common.clock import SystemClock
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import ThreadRunner
from pocketmq.store.append_result import PutStatus
from pocketmq.store.ha import wire
from pocketmq.store.ha.environment import HaEnvironment
from pocketmq.store.ha.service import HaService, port_of
from pocketmq.store.ha.state import HaState
from pocketmq.store.ha.transport import connect
from pocketmq.store.message_store import MessageStore
from tests.store.ha.master import HEARTBEAT_MS, Master
from tests.store.ha.transports import make_hello
from tests.store.log_fakes import HOST, SEGMENT_BYTES, bodies, store_config

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
    """No bytes are sent before it has agreed."""
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
    """They carry its end, the confirmed offset, and its clock."""
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
    """Every ``ha_send_heartbeat_interval``, with the confirmed offset."""
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
    """With a write-buffer pool a slave gets the committed bytes."""
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
    """Its socket accepts no bytes: the other slave is served, and the bytes for this one stay in the log."""
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
    """It causes one event; its next hello starts at the oldest byte."""
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


# ---- answers to sends


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
    """Before a slave came, after it left, and while it has not agreed on its start."""
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
    """RocketMQ's WAIT=false, and an asynchronous master."""
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
    """The message stays stored."""
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
    """``ha_slave_fallbehind_max``: one event when it falls behind, one when it has caught up."""
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
    """``in_sync_replicas`` 3: the second acknowledgement counts, and a single slave is not enough."""
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
    """The confirmations of a slave that has left do not count for the remaining one."""
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
    assert master.told == [(end, PutStatus.SLAVE_NOT_AVAILABLE)], "at once: too few are left"
    row = [(master.epoch.number, master.epoch.owner, 0)]
    back = master.following(node_id="one", end_offset=end, epochs=row)
    master.settle()
    assert back.welcome is not None
    assert master.ha.confirmed_offset == end, "it is back and still has it"
    master.close()


def test_disk_and_slaves_are_waited_for_together(tmp_path: Path) -> None:
    """This holds under SYNC_FLUSH as well: neither alone is enough."""
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
    assert master.told[1:] == [(second, PutStatus.SLAVE_NOT_AVAILABLE)], "no slave is left to wait for"
    third = master.send(b"three")
    assert len(master.told) == 2, "RocketMQ waits for the disk's verdict as well"
    master.settle()
    assert master.told[2:] == [(third, PutStatus.SLAVE_NOT_AVAILABLE)]
    master.close()


def test_a_store_without_replicas_answers_as_before(tmp_path: Path) -> None:
    """An append calls for slaves while there are any; nothing of it is left when the service has stopped."""
    master = Master(tmp_path)
    alone = list(master.store.log.on_committed)
    assert master.ha.committed not in alone
    master.following(broker_id=7)
    assert master.store.log.on_committed == [*alone, master.ha.committed]
    master.ha.stop()
    assert master.store.log.on_committed == alone
    master.store.close()


# ---- the visible state


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
    """Every worker runs in its thread: a slave catches up, sends are confirmed, a stop ends everything soon."""
    others = set(threading.enumerate())
    clock, runner, log = SystemClock(), ThreadRunner(), CapturedLog()
    config = store_config(tmp_path, broker_role="SYNC_MASTER", mapped_file_size_commit_log=1 << 20)
    store = MessageStore(config, clock=clock, runner=runner, log=log)
    store.store_host = HOST
    store.open()
    state = HaState(store.file_system, store.paths, clock, random.Random(1).randbytes)
    state.load()
    ha = HaService(HaEnvironment(store, state, "C", "b", clock, runner, log))
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
