"""A server with limits: connections that come too soon, sends over a quota, floods of wrong signatures."""

import pytest

from pocketmq.common.clock import ManualClock, SystemClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import NullLog
from pocketmq.remoting import connection
from pocketmq.remoting.codec import Request, decode_response, encode_request
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.limits.config import LimitsConfig
from pocketmq.remoting.limits.quota import TooManyWrong
from pocketmq.remoting.limits.server_limits import ServerLimits
from pocketmq.remoting.protocol.authenticate import AuthenticateRequestHeader, AuthenticateResponseHeader
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader
from pocketmq.remoting.security.tls_config import TlsConfig
from pocketmq.remoting.security.tls_files import TlsFiles
from tests.remoting.conftest import MemoryLog, Run
from tests.remoting.harness import EchoHandler, Peer, start_server, until
from tests.remoting.protected_servers import CERTIFICATES

R = RequestCode


def tls_files() -> TlsFiles:
    files = TlsFiles(TlsConfig(server_cert_path=str(CERTIFICATES / "server.pem")), SystemClock(), NullLog())
    files.load()
    return files


@pytest.mark.parametrize("tls", [False, True])
def test_connections_that_come_too_soon_are_closed_and_counted(tls: bool, run: Run, log: MemoryLog) -> None:
    """Through the loop's listener and through ours; each costs one token, whatever becomes of it."""

    async def scenario() -> None:
        clock, handler = ManualClock(), EchoHandler()
        server = await start_server(handler, log=log, clock=clock, tls=tls_files() if tls else None)
        server.limits = ServerLimits(LimitsConfig(connects_per_address_per_second=3), clock)
        hello = b"".join(encode_request(R.HEART_BEAT, 1))
        peers = [await Peer.connect(server.port) for _ in range(8)]
        for peer in peers:
            peer.send(hello)
        await until(lambda: len(handler.requests) == 3 and server.refused_count == 5)
        assert (len(server.connections), server.limits.counts["connects"]) == (3, 5)
        assert log.count("connections_refused") >= 1
        clock.advance_ms(1_000)
        late = await Peer.connect(server.port)
        late.send(hello)
        assert decode_response(await late.frame(), R.HEART_BEAT).code == ResponseCode.SUCCESS
        for peer in (*peers, late):
            await peer.close()
        await server.stop()
        assert not server._of_host

    run(scenario)


def test_a_send_over_the_quota_never_reaches_the_handler(run: Run) -> None:
    """Its connection goes on, and what is no send is served."""

    async def scenario() -> None:
        clock, handler = ManualClock(), EchoHandler()
        server = await start_server(handler, clock=clock)
        server.limits = ServerLimits(LimitsConfig(client_messages_in_per_second=1), clock)
        peer = await Peer.connect(server.port)

        async def ask(opaque: int, code: RequestCode = R.NATIVE_APPEND, *, count: int = 1) -> int:
            header = NativeAppendRequestHeader("p", True, [("T", 0, count)], 1000) if code == R.NATIVE_APPEND else None
            peer.send(b"".join(encode_request(code, opaque, header, bytes(4 * count))))
            answer = decode_response(await peer.frame(), R.HEART_BEAT)
            assert answer.opaque == opaque
            if answer.code:
                assert answer.remark.startswith("[QUOTA]")
                assert answer.extra == {"cause": "quota", "stored": "no", "retry_after_ms": "9001"}
            return answer.code

        assert await ask(1, count=10) == ResponseCode.SUCCESS
        assert await ask(2) == ResponseCode.SYSTEM_BUSY
        assert await ask(3, R.HEART_BEAT) == ResponseCode.SUCCESS
        assert [request.opaque for request in handler.requests] == [1, 3]
        clock.advance_ms(9_001)
        assert await ask(4) == ResponseCode.SUCCESS
        await peer.close()
        await server.stop()

    run(scenario)


def test_a_peer_that_does_not_listen_is_not_read_for_a_while(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every send gets its refusal, but not at the expense of others; one refusal now and then costs no pause."""

    async def scenario() -> None:
        monkeypatch.setattr(connection, "OVER_QUOTA_PAUSE_S", 0.2)
        clock, handler = ManualClock(), EchoHandler()
        server = await start_server(handler, clock=clock)
        server.limits = ServerLimits(LimitsConfig(client_messages_in_per_second=1), clock)
        peer = await Peer.connect(server.port)
        header = NativeAppendRequestHeader("p", True, [("T", 0, 1000)], 1000)
        peer.send(b"".join(encode_request(R.NATIVE_APPEND, 1, header, bytes(4000))))
        assert (await peer.frame()).header
        (opened,) = server.connections
        header = NativeAppendRequestHeader("p", True, [("T", 0, 1)], 1000)

        def frames(count: int) -> bytes:
            return b"".join(b"".join(encode_request(R.NATIVE_APPEND, 2, header, bytes(4))) for _ in range(count))

        for _ in range(3):
            peer.send(frames(connection.OVER_QUOTA_MAX // 2))
            for _ in range(connection.OVER_QUOTA_MAX // 2):
                assert decode_response(await peer.frame(), R.NATIVE_APPEND).code == ResponseCode.SYSTEM_BUSY
            assert not opened._paused
            clock.advance_ms(connection.OVER_QUOTA_MS_MAX + 1)
        peer.send(frames(400))
        await until(lambda: bool(opened._paused & connection._PAUSED_BY_QUOTA))
        for _ in range(400):
            assert decode_response(await peer.frame(), R.NATIVE_APPEND).code == ResponseCode.SYSTEM_BUSY
        await until(lambda: not opened._paused)
        assert [request.opaque for request in handler.requests] == [1]
        await peer.close()
        await server.stop()

    run(scenario)


class Flooded:
    """A guard that looks at nothing."""

    def __init__(self) -> None:
        self.asked = 0

    def nonce(self, connection: Connection) -> str:
        return "n" * 16

    def authenticate(
        self, connection: Connection, header: AuthenticateRequestHeader
    ) -> AuthenticateResponseHeader | PocketMQError:
        return TooManyWrong("[QUOTA]not checked", retry_after_ms=7)

    def refusal(self, connection: Connection, request: Request) -> PocketMQError | None:
        self.asked += 1
        return TooManyWrong("[QUOTA]not checked", retry_after_ms=7)


def test_a_flood_of_wrong_signatures_costs_one_answer_a_connection(run: Run) -> None:
    async def scenario() -> None:
        handler, guard = EchoHandler(), Flooded()
        server = await start_server(handler)
        server.guard = guard
        peer = await Peer.connect(server.port)
        peer.send(b"".join(b"".join(encode_request(R.HEART_BEAT, opaque)) for opaque in range(1, 200)))
        refused = decode_response(await peer.frame(), R.HEART_BEAT)
        assert (refused.code, refused.extra["retry_after_ms"]) == (ResponseCode.SYSTEM_BUSY, "7")
        await until(lambda: not server.connections)
        assert (guard.asked, handler.requests) == (1, [])
        await peer.close()
        await server.stop()

    run(scenario)
