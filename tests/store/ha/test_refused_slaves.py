"""Connections that a master refuses or closes: strangers, silent ones, slaves of other groups or with other starts."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from pocketmq.store.append_result import PutStatus
from pocketmq.store.ha import wire
from pocketmq.store.ha.connection import HANDSHAKE_MS
from pocketmq.store.ha.crowd import HOST_STRANGERS_MAX, PEERS_MAX, makes_room
from tests.store.ha.master import HEARTBEAT_MS, Master
from tests.store.ha.transports import WINDOW_BYTES, ScriptedSlave, make_hello

OK = PutStatus.PUT_OK


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
    """It learns the reason, and following slaves are not affected."""
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
    """In the master's own epoch no slave can have more than the master."""
    master = Master(tmp_path)
    end = master.append(b"one")
    slave = master.slave(end_offset=end + 1, epochs=[(master.epoch.number, master.epoch.owner, 0)])
    assert slave.refused is not None
    assert slave.refused.code == "larger_offset"
    assert len(master.refusals) == 1
    master.close()


def test_more_slaves_than_a_promotion_counts_on_are_refused(tmp_path: Path) -> None:
    """The limit is ``total_replicas``; an asynchronous master accepts more."""
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
    """Whatever it sends; RocketMQ's bare protocol is among it, unless allowed."""
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
    """So is one that sends only half of its hello."""
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


def test_a_crowd_of_strangers_is_bounded_and_keeps_no_slave_out(tmp_path: Path) -> None:
    """The oldest without a hello makes room, logged once a second; a slave that follows is served, a new one comes."""
    master = Master(tmp_path, total_replicas=3)
    slave = master.following(node_id="n1")
    strangers = [ScriptedSlave(master.listener, f"10.0.1.{number}:5") for number in range(2 * PEERS_MAX)]
    master.settle(2 * PEERS_MAX + 3)
    assert len(master.ha._peers) == PEERS_MAX
    assert [stranger.transport.sends.is_cut for stranger in strangers] == [True] * (PEERS_MAX + 1) + [False] * (
        PEERS_MAX - 1
    )
    assert len(master.refusals) == 1
    other = master.following("10.0.0.3:5", node_id="n2")
    assert len(master.ha._peers) == PEERS_MAX
    end = master.send(b"one")
    for each in (slave, other):
        each.receive()
        each.ack()
    master.settle()
    assert master.told == [(end, OK)]
    master.close()


@dataclass(slots=True)
class Follower:
    """A connection as ``makes_room`` sees it."""

    number: int
    peer: str = "10.0.0.1:5"
    has_said_hello: bool = True


def test_one_address_has_few_connections_without_a_hello(tmp_path: Path) -> None:
    """Its oldest makes room for its next, and strangers elsewhere stay."""
    master = Master(tmp_path)
    elsewhere = ScriptedSlave(master.listener, "10.0.9.9:5")
    strangers = [ScriptedSlave(master.listener, f"[::ffff:10.0.1.1]:{number}") for number in range(30)]
    master.settle(40)
    assert [stranger.transport.sends.is_cut for stranger in strangers].count(False) == HOST_STRANGERS_MAX
    assert not strangers[-1].transport.sends.is_cut
    assert not elsewhere.transport.sends.is_cut
    master.close()


def test_slaves_that_all_follow_make_no_room(tmp_path: Path) -> None:
    """Only connections before their handshake do; a further one is closed."""
    peers = [Follower(number) for number in range(PEERS_MAX)]
    assert makes_room(peers, "10.0.0.9:1") is None
    peers[7].has_said_hello = False
    assert makes_room(peers, "10.0.0.9:1") is peers[7]
    assert makes_room(peers[8:], "10.0.0.9:1") is None


@pytest.mark.parametrize("offset", [-1, 1])
def test_an_impossible_acknowledgement_ends_the_connection(tmp_path: Path, offset: int) -> None:
    """One beyond the sent bytes confirms none, nor does one that goes back."""
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
    assert master.told == [(first, OK), (end, PutStatus.SLAVE_NOT_AVAILABLE)]
    slave.receive()
    assert slave.is_closed
    assert len(master.events("slave_disconnected")) == 1
    assert not master.ha.is_slave_ok(end)
    master.close()


def test_a_slave_that_starts_elsewhere_is_sent_away(tmp_path: Path) -> None:
    """It must agree to exactly the offset of the welcome."""
    master = Master(tmp_path)
    master.append(b"one")
    slave = master.slave()
    slave.ack(1)
    master.settle()
    assert "the slave starts at 1 instead of 0" in master.refusals[0]
    master.close()


def test_a_connection_that_brings_nothing_is_closed(tmp_path: Path) -> None:
    """The limit is ``ha_housekeeping_interval``; answers to heartbeats keep the connection."""
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
    assert "nothing received for 20000 ms" in str(master.events("slave_disconnected")[0]["why"])
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
