"""The transports over sockets."""

import ipaddress
import socket
from collections.abc import Iterator

import pytest

from pocketmq.common.errors import ConfigError
from pocketmq.store.ha.transport import SocketTransport, TransportError, connect, host_of, listen


@pytest.fixture
def transports() -> Iterator[tuple[SocketTransport, SocketTransport]]:
    listener = listen("127.0.0.1", 0)
    theirs = connect(f"127.0.0.1:{listener.port}", 5000)
    ours = listener.accept(5000)
    assert isinstance(ours, SocketTransport)
    yield ours, theirs
    ours.close()
    theirs.close()
    listener.close()


def test_bytes_arrive_and_silence_is_no_end(transports: tuple[SocketTransport, SocketTransport]) -> None:
    """None means no bytes in time, 0 the end."""
    ours, theirs = transports
    buffer = memoryview(bytearray(10))
    assert theirs.receive_into(buffer, 0) is None
    assert theirs.receive_into(buffer, 1) is None
    assert ours.send([b"ab", memoryview(b"cd")]) == 4
    assert theirs.receive_into(buffer, 5000) == 4
    assert bytes(buffer[:4]) == b"abcd"
    ours.cut()
    assert theirs.receive_into(buffer, 5000) == 0


def test_a_full_socket_takes_part_and_says_so(transports: tuple[SocketTransport, SocketTransport]) -> None:
    """No call waits."""
    ours, theirs = transports
    data = bytes(1 << 20)
    sent = 0
    while taken := ours.send([data]):
        sent += taken
    assert not ours.wait_writable(0)
    buffer = memoryview(bytearray(1 << 20))
    while sent:
        count = theirs.receive_into(buffer, 5000)
        assert count
        sent -= count
    assert ours.wait_writable(5000)


def test_a_broken_connection_is_an_error_with_its_peer(transports: tuple[SocketTransport, SocketTransport]) -> None:
    """So is a use of a transport closed here."""
    ours, theirs = transports
    theirs.close()

    def send_on() -> None:
        for _ in range(100):
            ours.send([bytes(1 << 16)])

    with pytest.raises(TransportError, match=f"broken: {ours.peer}"):
        send_on()
    with pytest.raises(TransportError):
        theirs.receive_into(memoryview(bytearray(1)), 0)
    theirs.cut()
    assert theirs.wait_writable(0), "its next send tells"


def test_a_port_that_is_taken_stops_the_start() -> None:
    """The error names it."""
    listener = listen("127.0.0.1", 0)
    with pytest.raises(ConfigError, match=f"127.0.0.1:{listener.port}"):
        listen("127.0.0.1", listener.port)
    assert listener.accept(0) is None
    port = listener.port
    listener.close()
    with pytest.raises(TransportError):
        listener.accept(0)
    with pytest.raises(TransportError, match=f"127.0.0.1:{port}"):
        connect(f"127.0.0.1:{port}", 1000)


@pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1:none", "127.0.0.1:99999", ":0"])
def test_an_address_that_is_none_is_an_error(address: str) -> None:
    """The worker does not crash."""
    with pytest.raises(TransportError):
        connect(address, 1000)


def test_the_host_of_a_peer_is_the_same_in_both_families() -> None:
    """An IPv4 slave of a master that listens on IPv6 matches IPv4 networks."""
    assert host_of("10.0.0.7:5") == ipaddress.ip_address("10.0.0.7")
    assert host_of("[::ffff:10.0.0.7]:5") == ipaddress.ip_address("10.0.0.7")
    assert host_of("[fe80::1%eth0]:5") == ipaddress.ip_address("fe80::1")
    assert host_of("?:0") is None


def test_ipv6_peers_are_written_in_brackets() -> None:
    """The result is an address for a connect."""
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        listener = listen("::1", 0)
    except ConfigError:
        pytest.skip("no IPv6 here")
    theirs = connect(f"[::1]:{listener.port}", 5000)
    assert theirs.peer == f"[::1]:{listener.port}"
    ours = listener.accept(5000)
    assert ours is not None
    ours.close()
    theirs.close()
    listener.close()
