"""Members of a cluster prove to each other that they know its secret."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.clock import ManualClock
from pocketmq.store.ha import wire
from pocketmq.store.ha.proved_transport import HELD_BYTES_MAX, PREFACE, ClusterSecret, ProvedTransport
from pocketmq.store.ha.transport import TransportError
from tests.store.ha.nodes import Network, Node, drive
from tests.store.ha.transports import MemoryTransport, make_hello, pair

OURS = ClusterSecret("cluster", "the secret of the cluster")
OTHER = ClusterSecret("cluster", "another secret")


def received(transport: ProvedTransport | MemoryTransport) -> bytes:
    buffer = bytearray(1000)
    count = transport.receive_into(memoryview(buffer), 0)
    return bytes(buffer[: count or 0])


def both(
    slave_secret: ClusterSecret = OURS, master_secret: ClusterSecret = OURS
) -> tuple[ProvedTransport, ProvedTransport]:
    master_end, slave_end = pair()
    master = ProvedTransport(master_end, master_secret, is_slave=False)
    return master, ProvedTransport(slave_end, slave_secret, is_slave=True)


def test_bytes_pass_once_both_ends_have_proved_themselves() -> None:
    master, slave = both()
    assert slave.send([b"first ", b"frame"]) == 11
    for _ in range(2):
        assert received(master) == b""
        assert received(slave) == b""
    assert master.is_proved
    assert slave.is_proved
    assert received(master) == b"first frame"
    assert master.send([b"answer"]) == 6
    assert received(slave) == b"answer"


def test_the_secret_never_travels() -> None:
    master_end, slave_end = pair()
    master = ProvedTransport(master_end, OURS, is_slave=False)
    slave = ProvedTransport(slave_end, OURS, is_slave=True)
    seen = bytes(master_end.receives.data)
    for _ in range(2):
        received(master)
        seen += bytes(slave_end.receives.data)
        received(slave)
        seen += bytes(master_end.receives.data)
    assert slave.is_proved
    assert b"secret" not in seen
    assert "secret of" not in repr(OURS)


def test_another_secret_is_refused_by_the_master_before_any_byte_of_the_slave() -> None:
    master, slave = both(slave_secret=OTHER)
    slave.send([b"first frame"])
    received(master)
    received(slave)
    with pytest.raises(TransportError, match="another secret"):
        received(master)
    assert not slave.is_proved


def test_a_master_that_echoes_and_knows_no_secret_is_refused_by_the_slave() -> None:
    """It sends back what it gets, the slave's own proof too."""
    false_master, slave_end = pair()
    slave = ProvedTransport(slave_end, OURS, is_slave=True)
    slave.send([b"first frame"])
    for _ in range(2):
        echo = received(false_master)
        assert false_master.send([echo]) == len(echo)
        if len(echo) == 44:
            with pytest.raises(TransportError, match="another secret"):
                received(slave)
        else:
            received(slave)
    assert received(false_master) == b""


@pytest.mark.parametrize(
    "first",
    [wire.PREAMBLE + wire.encode_hello(make_hello()), b"\0" * 8, b"GET / HTTP/1.1\r\n\r\n", PREFACE[:-1] + b"\0"],
)
def test_a_peer_that_proves_nothing_is_refused(first: bytes) -> None:
    stranger, master_end = pair()
    master = ProvedTransport(master_end, OURS, is_slave=False)
    stranger.send([first])
    with pytest.raises(TransportError, match="does not prove"):
        received(master)
    assert received(stranger) == b""


def test_a_recorded_proof_opens_nothing() -> None:
    master_end, slave_end = pair()
    master = ProvedTransport(master_end, OURS, is_slave=False)
    slave = ProvedTransport(slave_end, OURS, is_slave=True)
    opening = bytes(master_end.receives.data)
    received(master)
    received(slave)
    proof = bytes(master_end.receives.data)
    again, thief = pair()
    second = ProvedTransport(again, OURS, is_slave=False)
    thief.send([opening])
    received(second)
    thief.send([proof])
    with pytest.raises(TransportError, match="another secret"):
        received(second)
    received(master)
    assert master.is_proved


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_raise_transport_errors_only(data: bytes, is_slave: bool) -> None:
    stranger, end = pair()
    transport = ProvedTransport(end, OURS, is_slave=is_slave)
    stranger.send([PREFACE[: len(data) % 9] + data])
    try:
        for _ in range(4):
            received(transport)
    except TransportError:
        pass
    assert not transport.is_proved


def test_what_waits_for_the_proofs_is_bounded() -> None:
    _, slave = both()
    slave.send([bytes(HELD_BYTES_MAX)])
    with pytest.raises(TransportError, match="before"):
        slave.send([b"x"])


def test_a_slave_with_the_secret_follows_and_one_without_does_not(tmp_path: Path) -> None:
    network, clock = Network(), ManualClock()
    master = Node(tmp_path / "master", network, clock, "SYNC_MASTER", secret=OURS)
    slave = Node(tmp_path / "slave", network, clock, "SLAVE", secret=OURS)
    slave.master = "master"
    drive(master, slave)
    assert slave.slave is not None
    assert slave.slave.status().connected
    slave.close()
    for secret in (OTHER, None):
        stranger = Node(tmp_path / f"stranger-{secret is None}", network, clock, "SLAVE", secret=secret)
        stranger.master = "master"
        drive(master, stranger)
        assert stranger.slave is not None
        assert not stranger.slave.status().connected
        assert stranger.store.log.appended_offset == 0
        stranger.close()
    master.close()


def test_a_master_without_the_secret_is_not_followed(tmp_path: Path) -> None:
    network, clock = Network(), ManualClock()
    master = Node(tmp_path / "master", network, clock, "SYNC_MASTER")
    slave = Node(tmp_path / "slave", network, clock, "SLAVE", secret=OURS)
    slave.master = "master"
    drive(master, slave)
    assert slave.slave is not None
    assert not slave.slave.status().connected
    assert "auth.inner_access_key" in slave.slave.status().last_error
    slave.close()
    master.close()
