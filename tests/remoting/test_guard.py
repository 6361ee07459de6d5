"""A server with a guard: proofs, and refusals before the handler."""

import json

import pytest

from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.codec import Request, decode_response, encode_request
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import AuthenticationFailed
from pocketmq.remoting.frame import JSON, MSGPACK
from pocketmq.remoting.protocol.authenticate import AuthenticateRequestHeader, AuthenticateResponseHeader
from pocketmq.remoting.server import RemotingServer
from tests.remoting.conftest import Run
from tests.remoting.harness import EchoHandler, Peer, start_server

ALICE = AuthenticateRequestHeader(user="alice", nonce="n" * 16, proof="right")


class OneUser:
    """A guard that lets alice in, and nobody else do anything."""

    def nonce(self, connection: Connection) -> str:
        return f"nonce of {connection.remote}"

    def authenticate(
        self, connection: Connection, header: AuthenticateRequestHeader
    ) -> AuthenticateResponseHeader | PocketMQError:
        if (header.user, header.proof) != ("alice", "right"):
            return AuthenticationFailed("not authenticated", why="the proof is wrong")
        connection.session = header.user
        return AuthenticateResponseHeader(user=header.user, proof="the server's")

    def refusal(self, connection: Connection, request: Request) -> PocketMQError | None:
        return None if connection.session else AuthenticationFailed("request refused", why="nobody has authenticated")


async def guarded() -> tuple[RemotingServer, EchoHandler, Peer]:
    handler = EchoHandler()
    server = await start_server(handler)
    server.guard = OneUser()
    return server, handler, await Peer.connect(server.port)


@pytest.mark.parametrize("kind", [JSON, MSGPACK])
def test_a_request_reaches_the_handler_only_after_the_proof(kind: int, run: Run) -> None:
    async def scenario() -> None:
        server, handler, peer = await guarded()
        code = RequestCode.GET_BROKER_CLUSTER_INFO
        peer.send(b"".join(encode_request(code, 1, serialize_type=kind)))
        refused = decode_response(await peer.frame(), code)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert refused.extra == {"cause": "no_permission", "stored": "no", "retry_after_ms": "0"}
        assert "nobody has authenticated" in refused.remark
        assert handler.requests == []
        peer.send(b"".join(encode_request(RequestCode.AUTHENTICATE, 2, ALICE, serialize_type=kind)))
        proved = decode_response(await peer.frame(), RequestCode.AUTHENTICATE)
        assert proved.code == ResponseCode.SUCCESS
        assert proved.header == AuthenticateResponseHeader(user="alice", proof="the server's")
        peer.send(b"".join(encode_request(code, 3, serialize_type=kind)))
        assert decode_response(await peer.frame(), code).code == ResponseCode.SUCCESS
        assert [request.opaque for request in handler.requests] == [3]
        await peer.close()
        await server.stop()

    run(scenario)


def test_a_oneway_request_of_a_stranger_is_dropped_without_an_answer(run: Run) -> None:
    async def scenario() -> None:
        server, handler, peer = await guarded()
        peer.send(b"".join(encode_request(RequestCode.GET_BROKER_CLUSTER_INFO, 1, oneway=True)))
        peer.send(b"".join(encode_request(RequestCode.HELLO, 2, serialize_type=JSON, extra={"_pmq": "1"})))
        answer = decode_response(await peer.frame(), RequestCode.HELLO)
        assert answer.opaque == 2
        assert json.loads(answer.extra["_pmq"])["nonce"] == f"nonce of {next(iter(server.connections)).remote}"
        assert handler.requests == []
        await peer.close()
        await server.stop()

    run(scenario)


def test_a_wrong_proof_ends_the_connection(run: Run) -> None:
    """Each guess costs a connection."""

    async def scenario() -> None:
        server, handler, peer = await guarded()
        wrong = AuthenticateRequestHeader(user="alice", nonce="n" * 16, proof="wrong")
        peer.send(b"".join(encode_request(RequestCode.AUTHENTICATE, 1, wrong)))
        peer.send(b"".join(encode_request(RequestCode.AUTHENTICATE, 2, ALICE)))
        refused = decode_response(await peer.frame(), RequestCode.AUTHENTICATE)
        assert (refused.opaque, refused.code) == (1, ResponseCode.NO_PERMISSION)
        assert await peer.closed_by_server() == b""
        assert handler.requests == []
        assert not server.connections
        await peer.close()
        await server.stop()

    run(scenario)


def test_a_server_without_a_guard_wants_no_proof(run: Run) -> None:
    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        peer = await Peer.connect(server.port)
        peer.send(b"".join(encode_request(RequestCode.HELLO, 1, serialize_type=JSON, extra={"_pmq": "1"})))
        assert json.loads(decode_response(await peer.frame(), RequestCode.HELLO).extra["_pmq"])["nonce"] == ""
        await peer.close()
        await server.stop()

    run(scenario)
