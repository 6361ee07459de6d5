"""TLS between master and slave: in memory, with real certificates."""

import ssl
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.common.clock import ManualClock
from pocketmq.store.ha.tls_transport import HaTls, TlsListener, TlsTransport, connect_tls, with_tls
from pocketmq.store.ha.transport import TransportError
from tests.store.ha.transports import MemoryListener, MemoryTransport, pair

CERTIFICATES = Path(__file__).parents[2] / "remoting" / "security" / "certificates"


def server_context(policy: ssl.VerifyMode = ssl.CERT_NONE) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0
    context.load_cert_chain(CERTIFICATES / "server.pem")
    if policy:
        context.verify_mode = policy
        context.load_verify_locations(CERTIFICATES / "ca.pem")
    return context


def client_context(ca: str = "ca", shown: str = "") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(CERTIFICATES / f"{ca}.pem")
    if shown:
        context.load_cert_chain(CERTIFICATES / f"{shown}.pem")
    return context


SERVER, CLIENT = server_context(), client_context()


def received(transport: TlsTransport | MemoryTransport) -> bytes | None:
    """All that is here, None if nothing is."""
    buffer, got = bytearray(70_000), b""
    while count := transport.receive_into(memoryview(buffer), 0):
        got += buffer[:count]
    return got or None


def shaken(window_bytes: int = 64 << 10) -> tuple[TlsTransport, TlsTransport]:
    """Master's end and slave's end of a connection, after their handshake."""
    master_end, slave_end = pair()
    master = TlsTransport(master_end, SERVER, server_name=None, enforcing=True)
    slave = TlsTransport(slave_end, CLIENT, server_name="localhost", enforcing=True)
    slave._step()
    assert received(master) is None
    slave.shake_hands(1000, ManualClock())
    assert received(master) is None
    for end in (master, slave):
        end._transport.sends.window_bytes = window_bytes  # type: ignore[attr-defined]
    return master, slave


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 60_000), max_size=4), max_size=8),
    st.sampled_from([1, 7, 100, 4096, 1 << 20]),
)
def test_every_byte_arrives_in_order_through_a_narrow_socket(sizes: list[list[int]], window_bytes: int) -> None:
    """A send that reports fewer bytes is called again with the rest, however little the socket takes."""
    window_bytes = max(window_bytes, 1 + sum(map(sum, sizes)) // 200)
    master, slave = shaken(window_bytes)
    sent = got = b""
    number = 0
    for parts_bytes in sizes:
        parts: list[bytes | memoryview] = []
        for size in parts_bytes:
            parts.append(bytes((number + at) % 251 for at in range(size)))
            number += size
        left = b"".join(parts)
        sent += left
        while left:
            left = left[master.send([left[: len(left) // 2], left[len(left) // 2 :]]) :]
            got += received(slave) or b""
    while len(got) < len(sent):
        master.send([])
        got += received(slave) or b""
    assert got == sent


def test_both_directions_at_once() -> None:
    master, slave = shaken()
    assert (master.send([b"down"]), slave.send([b"u", b"p"])) == (4, 2)
    assert (received(slave), received(master)) == (b"down", b"up")


def test_nothing_of_the_log_is_readable_on_the_way() -> None:
    master, slave = shaken()
    master.send([b"a message that is secret" * 100])
    wire = bytes(slave._transport.receives.data)  # type: ignore[attr-defined]
    assert len(wire) > 2_400
    assert b"secret" not in wire


@pytest.mark.parametrize(
    ("context", "name", "why"),
    [
        (client_context("other_ca"), "localhost", "certificate is refused"),
        (CLIENT, "mq.example.org", "certificate is refused"),
    ],
)
def test_a_slave_follows_no_stranger(context: ssl.SSLContext, name: str, why: str) -> None:
    master_end, slave_end = pair()
    master = TlsTransport(master_end, SERVER, server_name=None, enforcing=True)
    slave = TlsTransport(slave_end, context, server_name=name, enforcing=True)
    slave._step()
    received(master)
    with pytest.raises(TransportError) as raised:
        slave.shake_hands(1000, ManualClock())
    assert why in raised.value.why
    with pytest.raises(TransportError):
        received(master)


def test_a_master_serves_no_slave_without_a_certificate() -> None:
    master_end, slave_end = pair()
    master = TlsTransport(master_end, server_context(ssl.CERT_REQUIRED), server_name=None, enforcing=True)
    slave = TlsTransport(slave_end, CLIENT, server_name="localhost", enforcing=True)
    slave._step()
    received(master)
    slave.shake_hands(1000, ManualClock())  # TLS 1.3: the client is through before the server has judged it
    with pytest.raises(TransportError):
        received(master)


@pytest.mark.parametrize("enforcing", [False, True])
def test_a_plain_slave_is_served_unless_tls_is_enforced(enforcing: bool) -> None:
    master_end, slave_end = pair()
    master = TlsTransport(master_end, SERVER, server_name=None, enforcing=enforcing)
    slave_end.send([b"\xffPMQHA and more"])
    if enforcing:
        with pytest.raises(TransportError):
            received(master)
        return
    buffer = memoryview(bytearray(4))
    assert (master.receive_into(buffer, 0), bytes(buffer)) == (4, b"\xffPMQ")
    assert received(master) == b"HA and more"
    assert master.send([b"plain"]) == 5
    assert received(slave_end) == b"plain"


def test_the_end_of_a_connection_is_seen() -> None:
    master, slave = shaken()
    master.cut()
    assert slave.receive_into(memoryview(bytearray(9)), 0) == 0
    with pytest.raises(TransportError):
        master.send([b"x"])


def test_a_connection_to_a_plain_master_is_given_up() -> None:
    """It closes the connection, or answers what is not TLS."""
    tls = HaTls(lambda: None, client=CLIENT)
    for answer in (b"", b"plain answer"):
        master_end, slave_end = pair()
        if answer:
            master_end.send([answer])
        else:
            master_end.cut()
            slave_end.sends.is_cut = False
        with pytest.raises(TransportError):
            connect_tls(slave_end, "localhost:10912", tls, 1000, ManualClock())
        assert slave_end.is_closed


def test_what_is_not_configured_stays_plain() -> None:
    listener, (_, slave_end) = MemoryListener(), pair()
    assert with_tls(listener, None) is listener
    assert with_tls(listener, HaTls(lambda: None)) is listener
    assert connect_tls(slave_end, "localhost:1", None, 1, ManualClock()) is slave_end
    assert connect_tls(slave_end, "localhost:1", HaTls(lambda: None), 1, ManualClock()) is slave_end


def test_a_listener_takes_the_context_of_the_moment() -> None:
    """None once: the connection is plain."""
    listener = MemoryListener()
    contexts = [SERVER, SERVER, None]
    wrapped = with_tls(listener, HaTls(lambda: contexts.pop(0)))
    assert isinstance(wrapped, TlsListener)
    for _ in range(2):
        listener.waiting.append(pair()[0])
    assert isinstance(wrapped.accept(0), TlsTransport)
    assert isinstance(wrapped.accept(0), MemoryTransport)
