"""Channels over TLS, and the words for what goes wrong between TLS and plain."""

import asyncio
import ssl

import pytest

from pocketmq.common.clock import SystemClock
from pocketmq.common.events import NullLog
from pocketmq.remoting.channel import ChannelConfig, ClientChannel
from pocketmq.remoting.codec import encode_request
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connecting import connect
from pocketmq.remoting.errors import ConnectFailed
from pocketmq.remoting.frame import MSGPACK
from pocketmq.remoting.pending import Pending
from pocketmq.remoting.security.client_security import NO_SECURITY, TLS, ClientSecurity, client_security
from tests.remoting.conftest import Run
from tests.remoting.harness import EchoHandler, start_server, until
from tests.remoting.protected_servers import (
    ALICE,
    CERTIFICATES,
    ProofOfAlice,
    ProtectedRocketMQ,
    TlsFront,
    by_acl_1,
    closed,
    server_context,
)

HEART_BEAT = RequestCode.HEART_BEAT
OURS = TLS(ca=str(CERTIFICATES / "ca.pem"))


def channel_to(address: str, security: ClientSecurity) -> ClientChannel:
    config = ChannelConfig(hello_probe_after_ms=60_000)
    return ClientChannel(address, clock=SystemClock(), log=NullLog(), config=config, security=security)


async def failed_at(address: str, security: ClientSecurity) -> ConnectFailed:
    channel = channel_to(address, security)

    async def use() -> None:
        await channel.open()
        await channel.hello()

    with pytest.raises(ConnectFailed) as caught:
        await use()
    await channel.wait_closed()
    return caught.value


def test_a_native_channel_over_tls(run: Run) -> None:
    """The proof, requests larger than a TLS record, and frames that leave at once: all of them encrypted."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        server.guard = ProofOfAlice()
        front = TlsFront(server.port)
        channel = channel_to(await front.start(server_context()), client_security(ALICE, OURS))
        await channel.open()
        assert await channel.hello() is not None
        body = bytes(range(256)) * 1000
        for _ in range(3):
            answer = await channel.request(HEART_BEAT, None, body, timeout_ms=9000)
            assert bytes(answer.body) == body
        got: list[object] = []
        for _ in range(20):
            opaque = channel.reserve()
            assert opaque is not None
            frame = b"".join(encode_request(HEART_BEAT, opaque, None, b"now", serialize_type=MSGPACK))
            now_ns = SystemClock().monotonic_ns()
            channel.write_request(opaque, Pending(HEART_BEAT, now_ns, now_ns + 9_000_000_000, got.append, -1), frame)
        await until(lambda: len(got) == 20)
        assert {bytes(answer.body) for answer in got} == {b"now"}  # type: ignore[attr-defined]
        channel.close()
        await channel.wait_closed()
        await front.stop()
        await server.stop()

    run(scenario)


def test_credentials_and_tls_at_rocketmq(run: Run) -> None:
    async def scenario() -> None:
        rocketmq = ProtectedRocketMQ(by_acl_1)
        channel = channel_to(await rocketmq.start(server_context()), client_security(ALICE, OURS))
        await channel.open()
        assert await channel.hello() is None
        assert (await channel.request(HEART_BEAT, None, timeout_ms=9000)).code == ResponseCode.SUCCESS
        channel.close()
        await channel.wait_closed()
        await rocketmq.stop()

    run(scenario)


EXPIRED = str(CERTIFICATES / "expired.pem")


@pytest.mark.parametrize(
    ("certificate", "tls", "words"),
    [
        ("server", TLS(ca=str(CERTIFICATES / "other_ca.pem")), ["certificate is refused", "give the CA"]),
        ("server", TLS(), ["certificate is refused", "give the CA"]),
        ("expired", TLS(ca=EXPIRED, server_hostname="expired"), ["certificate is refused", "certificate has expired"]),
        ("elsewhere", OURS, ["certificate is refused", "127.0.0.1", "server_hostname="]),
        ("server", TLS(ca=OURS.ca, server_hostname="mq.example.org"), ["certificate is refused", "mq.example.org"]),
    ],
)
def test_a_certificate_that_is_not_trusted(certificate: str, tls: TLS, words: list[str], run: Run) -> None:
    """Of another CA, of a CA that the system does not know, one that has ended, for another name."""

    async def scenario() -> None:
        rocketmq = ProtectedRocketMQ(by_acl_1)
        error = await failed_at(await rocketmq.start(server_context(certificate)), client_security(None, tls))
        for word in words:
            assert word in str(error)
        await rocketmq.stop()

    run(scenario)


@pytest.mark.parametrize(
    ("certificate", "tls"),
    [
        ("elsewhere", TLS(ca=OURS.ca, server_hostname="mq.example.org")),
        ("elsewhere", TLS(verify=False)),
        ("server", OURS.context()),
        ("server", TLS(ca=OURS.ca, cert=str(CERTIFICATES / "client.pem"))),
    ],
)
def test_a_certificate_that_is_trusted(certificate: str, tls: TLS | ssl.SSLContext, run: Run) -> None:
    """By its other name, whatever it is, by the caller's own context, from a client with one of its own."""

    async def scenario() -> None:
        rocketmq = ProtectedRocketMQ(by_acl_1)
        client_ca = "ca" if isinstance(tls, TLS) and tls.cert else ""
        context = server_context(certificate, client_ca=client_ca)
        channel = channel_to(await rocketmq.start(context), client_security(ALICE, tls))
        await channel.open()
        await channel.hello()
        channel.close()
        await channel.wait_closed()
        await rocketmq.stop()

    run(scenario)


def test_a_server_that_wants_a_certificate_refuses_a_client_without_one(run: Run) -> None:
    """With TLS 1.3 the refusal comes after the client's handshake has ended, or is lost with the connection."""

    async def scenario() -> None:
        rocketmq = ProtectedRocketMQ(by_acl_1)
        error = await failed_at(await rocketmq.start(server_context(client_ca="ca")), client_security(ALICE, OURS))
        assert "TLS(cert=...)" in str(error)
        await rocketmq.stop()

    run(scenario)


def test_a_plain_server_is_no_tls_server(run: Run) -> None:
    """PocketMQ's takes the handshake for a frame that is too large, and closes. The client does not fall back."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        error = await failed_at(f"127.0.0.1:{server.port}", client_security(None, OURS))
        assert "is TLS switched on there?" in str(error)
        assert not handler.requests
        await server.stop()

        ended = asyncio.Event()

        async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.0 400 what was that\r\n\r\n")
            await reader.read()
            await closed(writer)
            ended.set()

        other = await asyncio.start_server(answers, "127.0.0.1", 0)
        error = await failed_at(f"127.0.0.1:{other.sockets[0].getsockname()[1]}", client_security(None, OURS))
        assert "it does not speak TLS" in str(error)
        await ended.wait()
        other.close()
        await other.wait_closed()

    run(scenario)


def test_a_tls_server_closes_a_plain_connection_and_the_error_says_tls(run: Run) -> None:
    async def scenario() -> None:
        rocketmq = ProtectedRocketMQ(by_acl_1)
        error = await failed_at(await rocketmq.start(server_context()), NO_SECURITY)
        assert "if it takes only TLS, give tls=" in str(error)
        await rocketmq.stop()

    run(scenario)


def test_a_server_that_is_silent_in_the_handshake_costs_the_connect_timeout(run: Run) -> None:
    async def scenario() -> None:
        ended = asyncio.Event()

        async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()  # until the client gives up
            await closed(writer)
            ended.set()

        server = await asyncio.start_server(says_nothing, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectFailed, match="no answer within 50 ms"):
            await connect(
                f"127.0.0.1:{port}",
                asyncio.BufferedProtocol,
                timeout_ms=50,
                linger_ms=1000,
                security=client_security(None, OURS),
                clock=SystemClock(),
            )
        await ended.wait()
        server.close()
        await server.wait_closed()

    run(scenario)


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:port", "127.0.0.1:99999999999"])
@pytest.mark.parametrize("security", [NO_SECURITY, client_security(None, OURS)])
def test_what_is_no_address(address: str, security: ClientSecurity, run: Run) -> None:
    async def scenario() -> None:
        error = await failed_at(address, security)
        assert "it is not host:port" in str(error)

    run(scenario)
