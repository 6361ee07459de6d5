"""Plain and TLS connections at one port, with real handshakes over loopback, on both loops."""

import asyncio
import socket
import ssl
from typing import Any

import pytest

from pocketmq.common.clock import ManualClock, SystemClock
from pocketmq.common.events import NullLog
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import AddressInUse, ConnectFailed
from pocketmq.remoting.security.client_security import TLS, ClientSecurity, client_security
from pocketmq.remoting.security.tls_config import ENFORCING, PERMISSIVE, TlsConfig
from pocketmq.remoting.security.tls_files import TlsFiles
from tests.remoting.conftest import MemoryLog, Run
from tests.remoting.harness import EchoHandler, Peer, open_channel, start_server, until
from tests.remoting.protected_servers import CERTIFICATES

SERVER, CA, CLIENT = (str(CERTIFICATES / f"{name}.pem") for name in ("server", "ca", "client"))
TRUSTS = client_security(None, TLS(ca=CA))
HEART_BEAT = RequestCode.HEART_BEAT
NOW_MS = 2_000_000_000_000
"""A time at which the certificates are valid."""


def tls_files(mode: str = PERMISSIVE, **config: Any) -> TlsFiles:
    files = TlsFiles(TlsConfig(server_cert_path=SERVER, server_mode=mode, **config), SystemClock(), NullLog())
    files.load()
    return files


def shows(name: str) -> ClientSecurity:
    return client_security(None, TLS(ca=CA, cert=str(CERTIFICATES / f"{name}.pem")))


def client_hello() -> bytes:
    """The first record of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = TLS(verify=False).context()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_plain_and_tls_share_a_port(run: Run) -> None:
    """Large and small requests; another thread's writer, which goes past TLS, is never made."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler, tls=tls_files())
        encrypted = await open_channel(server, security=TRUSTS)
        plain = await open_channel(server)
        for channel in (encrypted, plain):
            for body in (b"", b"x", b"L" * 3_000_000):
                answer = await channel.request(HEART_BEAT, None, body, timeout_ms=30_000)
                assert bytes(answer.body) == body
        secret, open_one = handler.opened
        assert (secret.is_encrypted, open_one.is_encrypted) == (True, False)
        secret.direct_turn(), open_one.direct_turn()
        assert (secret.direct is None, open_one.direct is None) == (True, False)
        assert len(server.connections) == 2
        assert server.acceptor is not None
        assert server.acceptor.handshakes == 1
        for channel in (encrypted, plain):
            channel.close()
            await channel.wait_closed()
        await until(lambda: not server.connections)
        await server.stop()
        assert not server._of_host

    run(scenario)


def test_enforcing_refuses_plain_connections(run: Run, log: MemoryLog) -> None:
    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler, tls=tls_files(ENFORCING), log=log)
        with pytest.raises(ConnectFailed, match="cannot use"):
            await open_channel(server)
        channel = await open_channel(server, security=TRUSTS)
        assert len(handler.opened) == 1
        channel.close()
        await channel.wait_closed()
        await server.stop()
        assert ("tls_refused", "plain, and only TLS is served") in [
            (name, each.get("why")) for name, each in log.events
        ]

    run(scenario)


def test_disabled_listens_as_without_a_certificate(run: Run) -> None:
    async def scenario() -> None:
        server = await start_server(EchoHandler(), tls=tls_files("disabled"))
        assert server.acceptor is None
        with pytest.raises(ConnectFailed, match="cannot connect"):
            await open_channel(server, security=TRUSTS)
        await server.stop()

    run(scenario)


def test_a_second_port_takes_both_too(run: Run) -> None:
    async def scenario() -> None:
        server = await start_server(EchoHandler(), tls=tls_files())
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
            with pytest.raises(AddressInUse):
                await server.listen_also("127.0.0.1", port)
        await server.listen_also("127.0.0.1", port)
        server.port = port
        channel = await open_channel(server, security=TRUSTS)
        channel.close()
        await channel.wait_closed()
        await server.stop()
        with socket.create_server(("127.0.0.1", port)):
            pass

    run(scenario)


@pytest.mark.parametrize(
    ("policy", "shown", "name"),
    [
        ("none", "client", ""),
        ("optional", "", ""),
        ("optional", "client", "client"),
        ("require", "client", "client"),
    ],
)
def test_a_clients_certificate_names_its_user(run: Run, policy: str, shown: str, name: str) -> None:
    async def scenario() -> None:
        handler = EchoHandler()
        trust = "" if policy == "none" else CA
        server = await start_server(
            handler, tls=tls_files(server_need_client_auth=policy, server_trust_cert_path=trust)
        )
        channel = await open_channel(server, security=shows(shown) if shown else TRUSTS)
        assert handler.opened[0].peer_name == name
        channel.close()
        await channel.wait_closed()
        await server.stop()

    run(scenario)


@pytest.mark.parametrize(("policy", "shown"), [("require", ""), ("optional", "expired"), ("require", "expired")])
def test_a_client_without_a_certificate_of_the_ca_is_refused(run: Run, policy: str, shown: str) -> None:
    """An expired one comes from another CA as well; in either mode it is refused, not ignored."""

    async def scenario() -> None:
        handler = EchoHandler()
        trust = str(CERTIFICATES / "expired.pem") if shown else CA
        server = await start_server(
            handler, tls=tls_files(server_need_client_auth=policy, server_trust_cert_path=trust)
        )
        with pytest.raises(ConnectFailed):
            await open_channel(server, security=shows(shown) if shown else TRUSTS)
        assert server.acceptor is not None
        acceptor = server.acceptor
        await until(lambda: acceptor.failed == 1)
        assert not handler.opened
        await server.stop()

    run(scenario)


@pytest.mark.parametrize(
    ("tls", "why"),
    [
        (TLS(ca=str(CERTIFICATES / "other_ca.pem")), "certificate is refused"),
        (TLS(ca=CA, server_hostname="mq.example.org"), "certificate is refused"),
    ],
)
def test_a_client_that_does_not_trust_the_server_ends_the_handshake(run: Run, tls: TLS, why: str) -> None:
    async def scenario() -> None:
        server = await start_server(EchoHandler(), tls=tls_files())
        with pytest.raises(ConnectFailed) as raised:
            await open_channel(server, security=client_security(None, tls))
        assert why in raised.value.why
        assert server.acceptor is not None
        acceptor = server.acceptor
        await until(lambda: acceptor.failed == 1)
        assert not server._of_host
        await server.stop()

    run(scenario)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16" + b"\x00" * 300,  # no version of TLS
        b"\x16\x03\x01\x00\x00" + b"\x01" * 9,  # an empty record
        b"\x16\x03\x01\xff\xff\x01\x00\x00\x05" + b"\x00" * 400,  # a record longer than there is
        b"\x16\x03\x01\x00\x20\x02\x00\x00\x05" + b"\x00" * 400,  # no ClientHello
        b"\x16\x03\x01\x00\x04\x01\x00\x10\x00" + b"\x00" * 400,  # a ClientHello in several records
        b"\x16\x03\x01\x00\x29\x01\x00\x00\x25" + b"\x03\x03" + b"\x00" * 400,  # one that says nothing
    ],
)
def test_garbage_behind_the_first_byte_ends_the_connection(run: Run, sent: bytes) -> None:
    async def scenario() -> None:
        server = await start_server(EchoHandler(), tls=tls_files())
        peer = await Peer.connect(server.port)
        peer.send(sent)
        assert len(await peer.closed_by_server()) < 16  # an alert, or nothing
        await peer.close()
        assert server.acceptor is not None
        acceptor = server.acceptor
        await until(lambda: acceptor.failed == 1)
        assert not server._of_host
        await server.stop()

    run(scenario)


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"half"])
def test_a_peer_that_leaves_before_its_handshake_leaves_nothing(run: Run, sent: bytes) -> None:
    async def scenario() -> None:
        server = await start_server(EchoHandler(), tls=tls_files())
        begun = client_hello()[:40] if sent == b"half" else sent
        peer = await Peer.connect(server.port)
        peer.send(begun)
        await until(lambda: bool(server._of_host))
        await peer.close()
        await until(lambda: not server._of_host)
        await server.stop()

    run(scenario)


def test_a_peer_that_leaves_amid_its_handshake_leaves_nothing(run: Run) -> None:
    async def scenario() -> None:
        server = await start_server(EchoHandler(), tls=tls_files())
        assert server.acceptor is not None
        acceptor = server.acceptor
        peer = await Peer.connect(server.port)
        peer.send(client_hello())
        assert await peer.reader.read(5)  # the server's part
        await peer.close()
        await until(lambda: acceptor.failed == 1)
        assert not server._of_host
        await server.stop()

    run(scenario)


@pytest.mark.parametrize("sent", [b"", b"\x16", b"half"])
def test_silent_and_slow_ones_count_and_are_closed_in_time(run: Run, sent: bytes) -> None:
    """The clock is the test's. A slow ClientHello wakes the server only when it is whole."""

    async def scenario() -> None:
        clock = ManualClock(NOW_MS)
        server = await start_server(
            EchoHandler(), tls=tls_files(handshake_timeout_mills=5_000), clock=clock, expire_interval_ms=1_000_000
        )
        hello = client_hello()
        peers = [await Peer.connect(server.port) for _ in range(3)]
        for peer in peers:
            peer.send(hello[:100] if sent == b"half" else sent)
        await until(lambda: server._of_host["127.0.0.1"] == 3)
        clock.advance_ms(4_999)
        server.expire()
        assert server._of_host["127.0.0.1"] == 3
        clock.advance_ms(1)
        server.expire()
        assert not server._of_host
        for peer in peers:
            assert await peer.closed_by_server() == b""
            await peer.close()
        await server.stop()

    run(scenario)


def test_a_hello_in_pieces_is_a_handshake_once_it_is_whole(run: Run) -> None:
    async def scenario() -> None:
        server = await start_server(EchoHandler(), tls=tls_files())
        hello = client_hello()
        peer = await Peer.connect(server.port)
        for begin, end in ((0, 1), (1, 7), (7, 60), (60, len(hello))):
            peer.send(hello[begin:end])
            await asyncio.sleep(0)
            await until(lambda: bool(server._of_host))
        assert (await peer.reader.readexactly(1))[0] == 0x16
        await peer.close()
        await until(lambda: not server._of_host)
        await server.stop()

    run(scenario)


def test_a_handshake_that_does_not_go_on_ends(run: Run, log: MemoryLog) -> None:
    """The peer sends its hello, and nothing more."""

    async def scenario() -> None:
        server = await start_server(EchoHandler(), tls=tls_files(handshake_timeout_mills=50), log=log)
        peer = await Peer.connect(server.port)
        peer.send(client_hello())
        assert await peer.closed_by_server()
        await peer.close()
        await until(lambda: not server._of_host)
        await server.stop()
        assert "the handshake took too long" in [each.get("why") for name, each in log.events]

    run(scenario)


def test_silent_ones_give_way_where_there_are_too_many(run: Run) -> None:
    async def scenario() -> None:
        clock = ManualClock(NOW_MS)
        server = await start_server(
            EchoHandler(), tls=tls_files(), clock=clock, connections_max=3, expire_interval_ms=1_000_000
        )
        silent = [await Peer.connect(server.port) for _ in range(3)]
        await until(lambda: server._of_host["127.0.0.1"] == 3)
        refused = await Peer.connect(server.port)
        assert await refused.closed_by_server() == b""
        clock.advance_ms(2_001)
        channel = await open_channel(server, security=TRUSTS)
        assert server._of_host["127.0.0.1"] == 3
        assert await silent[0].closed_by_server() == b""
        channel.close()
        await channel.wait_closed()
        for peer in (*silent, refused):
            await peer.close()
        await server.stop()

    run(scenario)


def test_a_stop_ends_what_has_not_become_a_connection(run: Run) -> None:
    """Silent ones, half a hello, an open handshake, one that waits for its turn."""

    async def scenario() -> None:
        server = await start_server(EchoHandler(), tls=tls_files(handshakes_per_second_max=1))
        hello = client_hello()
        peers = [await Peer.connect(server.port) for _ in range(4)]
        for peer, sent in zip(peers, (b"", hello[:50], hello, hello), strict=True):
            peer.send(sent)
        await until(lambda: server._of_host["127.0.0.1"] == 4)
        assert await peers[2].reader.read(1)
        await server.stop()
        assert not server._of_host
        for peer in peers:
            await peer.closed_by_server()
            await peer.close()

    run(scenario)


def test_new_connections_get_a_new_certificate(run: Run) -> None:
    """Open ones stay as they are."""

    async def scenario() -> None:
        files = tls_files()
        server = await start_server(EchoHandler(), tls=files)
        before = await open_channel(server, security=TRUSTS)
        elsewhere = TlsFiles(TlsConfig(server_cert_path=str(CERTIFICATES / "elsewhere.pem")), SystemClock(), NullLog())
        elsewhere.load()
        files.server = elsewhere.server
        with pytest.raises(ConnectFailed):
            await open_channel(server, security=TRUSTS)
        after = await open_channel(server, security=client_security(None, TLS(ca=CA, server_hostname="mq.example.org")))
        for channel in (before, after):
            assert bytes((await channel.request(HEART_BEAT, None, b"x", timeout_ms=30_000)).body) == b"x"
            channel.close()
            await channel.wait_closed()
        await server.stop()

    run(scenario)
