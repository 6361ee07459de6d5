"""Channels with and without credentials, at servers that want some and at servers that want none."""

import pytest

from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import NullLog
from pocketmq.remoting.channel import ChannelConfig, ClientChannel
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codec import Body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import AuthenticationFailed, ConnectFailed
from pocketmq.remoting.frame import BINARY, JSON, MSGPACK
from pocketmq.remoting.introduction import GIVE_CREDENTIALS, Introduction
from pocketmq.remoting.protocol.pull import QueryMessageRequestHeader
from pocketmq.remoting.security.client_security import NO_SECURITY, ClientSecurity
from pocketmq.remoting.security.credentials import Credentials
from pocketmq.remoting.security.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, UNIQUE_KEY_QUERY
from tests.remoting.conftest import Run
from tests.remoting.harness import ANNOUNCED, EchoHandler, start_server, until
from tests.remoting.protected_servers import ALICE, ProofOfAlice, ProtectedRocketMQ, Refusal, by_acl_1, by_acl_2

HEART_BEAT = RequestCode.HEART_BEAT
OF_ALICE = ClientSecurity(ALICE)
BOTH = pytest.mark.parametrize("refusal", [by_acl_1, by_acl_2])


def channel_to(address: str, security: ClientSecurity = OF_ALICE, **config: int) -> ClientChannel:
    settings = ChannelConfig(**{"hello_probe_after_ms": 60_000, **config})
    return ClientChannel(address, clock=SystemClock(), log=NullLog(), config=settings, security=security)


async def refused_by(address: str, security: ClientSecurity) -> AuthenticationFailed:
    channel = channel_to(address, security)
    await channel.open()
    with pytest.raises(AuthenticationFailed) as caught:
        await channel.hello()
    assert channel.closed
    await channel.wait_closed()
    return caught.value


@BOTH
@pytest.mark.parametrize("kind", [JSON, BINARY])
def test_every_request_to_rocketmq_is_signed(refusal: Refusal, kind: int, run: Run) -> None:
    """HELLO, requests with and without a body, in parts, and oneways; a signature that is wrong would be refused."""

    async def scenario() -> None:
        rocketmq = ProtectedRocketMQ(refusal)
        channel = channel_to(await rocketmq.start(), serialize_type=kind)
        await channel.open()
        assert await channel.hello() is None
        header = QueryMessageRequestHeader(
            topic="T", key="ключ", max_num=5, begin_timestamp=0, end_timestamp=9, unique_key_query=True
        )
        bodies: list[Body] = [b"", b"a body", [b"in ", memoryview(b"parts")]]
        for body in bodies:
            answer = await channel.request(
                RequestCode.QUERY_MESSAGE, header, body, timeout_ms=5000, extra={"zone": "z"}
            )
            assert answer.code == ResponseCode.QUERY_NOT_FOUND
        channel.send_oneway(HEART_BEAT, None, b"oneway")
        await until(lambda: len(rocketmq.requests) == 5)
        assert rocketmq.refused == 0
        assert {request.serialize_type for request in rocketmq.requests[1:]} == {kind}
        assert all(request.extra[ACCESS_KEY] == "alice" for request in rocketmq.requests)
        # brokers of 4.9 and 5.3 disagree on whether the signature covers this one
        assert all(UNIQUE_KEY_QUERY not in request.extra for request in rocketmq.requests)
        channel.close()
        await channel.wait_closed()
        await rocketmq.stop()

    run(scenario)


def test_the_probe_is_signed_too(run: Run) -> None:
    """A server that drops HELLO answers the second request."""

    async def scenario() -> None:
        rocketmq = ProtectedRocketMQ(by_acl_2)
        seen: list[int] = []

        def drops_hello(fields: dict[str, str], body: bytes) -> tuple[int, str] | None:
            seen.append(1)
            return by_acl_2(fields, body)

        rocketmq.refusal = drops_hello
        rocketmq.drops.add(RequestCode.HELLO)
        channel = channel_to(await rocketmq.start(), hello_probe_after_ms=1)
        await channel.open()
        assert await channel.hello() is None
        assert len(seen) == 2
        assert rocketmq.refused == 0
        channel.close()
        await channel.wait_closed()
        await rocketmq.stop()

    run(scenario)


def test_a_security_token_goes_with_each_request(run: Run) -> None:
    async def scenario() -> None:
        rocketmq = ProtectedRocketMQ(by_acl_1)
        channel = channel_to(
            await rocketmq.start(), ClientSecurity(Credentials("alice", ALICE.secret_key, security_token="a token"))
        )
        await channel.open()
        await channel.hello()
        await channel.request(HEART_BEAT, None, timeout_ms=5000)
        assert [request.extra[SECURITY_TOKEN] for request in rocketmq.requests] == ["a token", "a token"]
        channel.close()
        await channel.wait_closed()
        await rocketmq.stop()

    run(scenario)


@pytest.mark.parametrize(
    ("refusal", "security", "words"),
    [
        (by_acl_1, NO_SECURITY, ["wants credentials", "1 ", "No accessKey is configured", GIVE_CREDENTIALS]),
        (by_acl_2, NO_SECURITY, ["wants credentials", "16 username cannot be null.", GIVE_CREDENTIALS]),
        (by_acl_1, ClientSecurity(Credentials("bob", "b")), ["credentials of bob", "No acl config for bob", "check"]),
        (by_acl_2, ClientSecurity(Credentials("bob", "b")), ["credentials of bob", "User:bob is not found.", "check"]),
        (by_acl_1, ClientSecurity(Credentials("alice", "hidden")), ["of alice", "Check signature failed", "check"]),
        (by_acl_2, ClientSecurity(Credentials("alice", "hidden")), ["of alice", "check signature failed.", "check"]),
    ],
)
def test_a_refusal_of_rocketmq_is_no_other_server(
    refusal: Refusal, security: ClientSecurity, words: list[str], run: Run
) -> None:
    """It answers before it looks at the code, so "not RocketMQ" and "not PocketMQ" would both be wrong."""

    async def scenario() -> None:
        rocketmq = ProtectedRocketMQ(refusal)
        address = await rocketmq.start()
        error = await refused_by(address, security)
        for word in (address, *words):
            assert word in str(error)
        assert "hidden" not in str(error)
        assert not error.retriable
        await rocketmq.stop()

    run(scenario)


def test_a_permission_that_is_missing_at_rocketmq_4_9_means_not_stored(run: Run) -> None:
    """Code 1 alone would leave that open."""
    refused = "org.apache.rocketmq.acl.common.AclException: No default permission for topic:T, org.apache.rocketmq.acl"

    async def scenario() -> None:
        rocketmq = ProtectedRocketMQ(by_acl_1)
        channel = channel_to(await rocketmq.start())
        await channel.open()
        await channel.hello()
        rocketmq.refusal = lambda fields, body: (ResponseCode.SYSTEM_ERROR, body.decode())
        for remark, facts in ((refused, {"cause": "no_permission", "stored": "no"}), ("the disk is full", {})):
            answer = await channel.request(HEART_BEAT, None, remark.encode(), timeout_ms=5000)
            assert (answer.code, answer.remark, dict(answer.extra)) == (1, remark, facts)
        channel.close()
        await channel.wait_closed()
        await rocketmq.stop()

    run(scenario)


@pytest.mark.parametrize(("code", "remark"), [(1, "the disk is full"), (2, "[REJECTREQUEST]system busy"), (17, "none")])
def test_another_refusal_says_nothing_about_credentials(code: int, remark: str, run: Run) -> None:
    async def scenario() -> None:
        rocketmq = ProtectedRocketMQ(lambda fields, body: (code, remark))
        channel = channel_to(await rocketmq.start())
        await channel.open()
        assert await channel.hello() is None
        assert not channel.closed
        channel.close()
        await channel.wait_closed()
        await rocketmq.stop()

    run(scenario)


def test_a_native_connection_proves_its_user_once(run: Run) -> None:
    """HELLO alone is signed; behind the proof no request carries a key or a signature."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        server.guard = guard = ProofOfAlice()
        channel = channel_to(f"127.0.0.1:{server.port}")
        await channel.open()
        announcement = await channel.hello()
        assert announcement is not None
        assert announcement.nonce == f"nonce of {channel.local}"
        for _ in range(3):
            answer = await channel.request(HEART_BEAT, None, b"body", timeout_ms=5000)
            assert (answer.code, answer.serialize_type) == (ResponseCode.SUCCESS, MSGPACK)
        assert guard.proofs == 1
        assert all(not request.extra for request in handler.requests)
        channel.close()
        await channel.wait_closed()
        await server.stop()

    run(scenario)


def test_a_server_without_a_nonce_gets_nothing_signed(run: Run) -> None:
    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        channel = channel_to(f"127.0.0.1:{server.port}")
        await channel.open()
        assert await channel.hello() == ANNOUNCED
        await channel.request(HEART_BEAT, None, timeout_ms=5000)
        channel.send_oneway(HEART_BEAT, None)
        await until(lambda: len(handler.requests) == 2)
        for request in handler.requests:
            assert SIGNATURE not in request.extra
            assert ACCESS_KEY not in request.extra
        channel.close()
        await channel.wait_closed()
        await server.stop()

    run(scenario)


@pytest.mark.parametrize("keys", [("alice", "hidden"), ("bob", "hidden")])
def test_a_wrong_key_is_refused_with_the_words_of_the_server(keys: tuple[str, str], run: Run) -> None:
    async def scenario() -> None:
        server = await start_server(EchoHandler())
        server.guard = ProofOfAlice()
        error = await refused_by(f"127.0.0.1:{server.port}", ClientSecurity(Credentials(*keys)))
        assert f"refused the credentials of {keys[0]}" in str(error)
        assert "or its proof is wrong" in str(error)
        assert "hidden" not in str(error)
        await server.stop()

    run(scenario)


def test_a_server_that_does_not_know_the_secret_is_not_trusted(run: Run) -> None:
    """It would let anybody in, to read what they send."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        server.guard = ProofOfAlice(lies=True)
        error = await refused_by(f"127.0.0.1:{server.port}", OF_ALICE)
        assert "could not prove that it knows the secret key of alice" in str(error)
        assert not handler.requests
        await server.stop()

    run(scenario)


def test_without_credentials_the_refusals_say_what_to_give(run: Run) -> None:
    """HELLO succeeds, since there may be requests that a stranger may send."""

    async def scenario() -> None:
        server = await start_server(EchoHandler())
        server.guard = ProofOfAlice()
        channel = channel_to(f"127.0.0.1:{server.port}", NO_SECURITY)
        await channel.open()
        assert await channel.hello() is not None
        answer = await channel.request(HEART_BEAT, None, timeout_ms=5000)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "nobody has authenticated" in answer.remark
        assert "give credentials=" in answer.remark
        channel.close()
        await channel.wait_closed()
        await server.stop()

    run(scenario)


@BOTH
def test_a_pool_does_not_ask_again_at_once(refusal: Refusal, run: Run) -> None:
    """The callers in the meantime get the same error, with its text and the time."""

    async def scenario() -> None:
        rocketmq = ProtectedRocketMQ(refusal)
        address = await rocketmq.start()
        pool = ChannelPool(clock=SystemClock(), log=NullLog(), security=ClientSecurity(Credentials("bob", "b")))
        errors: list[AuthenticationFailed] = []
        for _ in range(5):
            with pytest.raises(AuthenticationFailed) as caught:
                await pool.get(address)
            errors.append(caught.value)
        assert rocketmq.connections == 1
        assert len({(error.what, error.why, error.hint) for error in errors}) == 1
        assert all(0 < error.retry_after_ms <= 1_000 for error in errors[1:])
        await pool.close()
        await rocketmq.stop()

    run(scenario)


def test_a_server_that_cannot_judge_is_no_refusal(run: Run) -> None:
    """One that stops or is busy says nothing about the credentials: the next connect may succeed."""

    class Busy(ProofOfAlice):
        def authenticate(self, connection: object, header: object) -> PocketMQError:
            return ConnectFailed("stopping")

    async def scenario() -> None:
        server = await start_server(EchoHandler())
        server.guard = Busy()
        channel = channel_to(f"127.0.0.1:{server.port}")
        await channel.open()
        with pytest.raises(ConnectFailed, match="stopping") as caught:
            await channel.hello()
        assert caught.value.retriable
        await channel.wait_closed()
        await server.stop()

    run(scenario)


def test_each_introduction_has_a_nonce_of_its_own() -> None:
    first, second = (Introduction("a:1", ALICE, "the server's") for _ in range(2))
    assert first.request.nonce != second.request.nonce
    assert first.request.proof != second.request.proof
    assert 16 <= len(first.request.nonce) <= 64
