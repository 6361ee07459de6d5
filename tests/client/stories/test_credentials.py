"""The SDK with a broker that wants a proof from each connection."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from pocketmq.client import (
    Admin,
    AuthenticationFailed,
    BrokerAnswerError,
    Credentials,
    Message,
    PocketMQError,
    Producer,
    PullConsumer,
    PushConsumer,
    SendFailed,
    TransactionProducer,
    blocking,
)
from pocketmq.testing.broker import PocketBroker
from tests.remoting.protected_servers import ALICE, ProofOfAlice

WRONG = Credentials("alice", "hidden-and-wrong")


@pytest.fixture(scope="module")
def guarded() -> Iterator[PocketBroker]:
    """A broker that knows alice; its name server lets everyone in."""
    with PocketBroker() as running:
        assert running.app._server is not None
        running.app._server.guard = ProofOfAlice()
        yield running


async def test_everything_works_with_the_right_key(guarded: PocketBroker) -> None:
    """Sends, transactions, administration, both consumers, ordered too, and the face for threads."""
    got: set[bytes] = set()
    everything = asyncio.Event()

    async def note(message: Any) -> None:
        got.add(bytes(message.body))
        if len(got) == 34:
            everything.set()

    async with Admin(guarded.namesrv, credentials=ALICE) as admin:
        await admin.create_topic("T")
    consumer = PushConsumer("push", guarded.namesrv, start="earliest", credentials=ALICE)
    consumer.subscribe("T", ordered=True)(note)
    producer = TransactionProducer("send", guarded.namesrv, check=lambda message: True, credentials=ALICE)
    async with consumer, producer:
        await asyncio.gather(*(producer.send(Message("T", b"%d" % number)) for number in range(32)))
        await producer.send_in_transaction(Message("T", b"in a transaction"), lambda message: True)

        def from_a_thread() -> None:
            with blocking.Producer("face", guarded.namesrv, credentials=ALICE) as face:
                face.send(Message("T", b"from a thread"))

        await asyncio.to_thread(from_a_thread)
        await asyncio.wait_for(everything.wait(), 60)
    async with PullConsumer("pull", guarded.namesrv, credentials=ALICE) as pull:
        assert len([each async for each in pull.stream("T", start="earliest", stop_at_end=True)]) == 34


async def test_a_wrong_key_ends_a_send_at_once_and_is_not_shown(guarded: PocketBroker) -> None:
    async with Producer("send", guarded.namesrv, credentials=WRONG, send_msg_timeout_ms=60_000) as producer:
        with pytest.raises(AuthenticationFailed, match="refused the credentials of alice") as caught:
            await producer.send(Message("T", b"x"))
    assert "hidden" not in str(caught.value)


async def test_a_wrong_key_fails_an_administrator_and_a_pull(guarded: PocketBroker) -> None:
    async with Admin(guarded.namesrv, credentials=WRONG) as admin:
        with pytest.raises(AuthenticationFailed, match="check access key and secret key"):
            await admin.create_topic("U")
    async with PullConsumer("pull", guarded.namesrv, credentials=WRONG) as pull:
        with pytest.raises(AuthenticationFailed, match="check access key and secret key"):
            await pull.poll("T", timeout_ms=100)


async def test_without_credentials_the_error_says_what_to_give(guarded: PocketBroker) -> None:
    async def fails(work: Any) -> PocketMQError:
        with pytest.raises((BrokerAnswerError, SendFailed)) as caught:
            await work
        return caught.value

    async with Producer("send", guarded.namesrv) as producer:
        assert "give credentials=" in str(await fails(producer.send(Message("T", b"x"))))
    async with Admin(guarded.namesrv) as admin:
        assert "give credentials=" in str(await fails(admin.create_topic("U")))


async def test_a_name_server_that_refuses_the_key_is_not_away(guarded: PocketBroker) -> None:
    """The refusal is the error, not "no name server", and nothing waits for its return."""
    server = guarded._running().namesrv._server
    assert server is not None
    server.guard = ProofOfAlice()
    try:
        async with Producer("send", guarded.namesrv, credentials=WRONG, send_msg_timeout_ms=60_000) as producer:
            with pytest.raises(AuthenticationFailed, match=guarded.namesrv):
                await producer.send(Message("T", b"x"))
    finally:
        server.guard = None
