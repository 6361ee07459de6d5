"""Transactions whose events meet at the wrong moment."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from pocketmq.client import LocalTransactionState, Message, TransactionProducer
from pocketmq.testing.broker import PocketBroker
from tests.client.stories.test_transactions import FAST, bodies, eventually_bodies


@pytest.fixture(scope="module")
def asking() -> Iterator[PocketBroker]:
    """Start a broker that checks at once."""
    with PocketBroker(broker=FAST) as broker:
        yield broker


async def test_a_check_before_the_answer_to_the_half_message_rolls_nothing_back(
    asking: PocketBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker asks while the answer to the send is on its way: the local transaction has yet to run, so "no row" is
    no reason to roll back."""
    rows: set[str] = set()
    topic = "TxEarly"
    async with TransactionProducer("early", asking.namesrv, check=lambda m: m.msg_id in rows) as producer:
        real: Any = producer.port.send_half

        def slow(*arguments: Any) -> Any:
            async def late() -> Any:
                receipt = await real(*arguments)
                async with asyncio.timeout(60):
                    while not producer.checks.checked:  # noqa: ASYNC110
                        await asyncio.sleep(0.005)
                await asyncio.sleep(0.05)
                return receipt

            return asyncio.ensure_future(late())

        monkeypatch.setattr(producer.port, "send_half", slow)

        async def local(half: Any) -> bool:
            rows.add(half.msg_id)
            return True

        receipt = await producer.send_in_transaction(Message(topic, b"row"), local)
        assert receipt.committed
    assert await bodies(asking.namesrv, topic) == [b"row"]


async def test_a_commit_whose_answer_was_lost_is_asked_for(asking: PocketBroker) -> None:
    """The database commits, and its answer is lost: the body raises. The check, not the exception, knows the result."""
    rows: set[str] = set()
    topic = "TxLostCommit"
    async with TransactionProducer("lost", asking.namesrv, check=lambda m: m.msg_id in rows) as producer:
        transaction = producer.transaction(Message(topic, b"row"))

        async def pay() -> None:
            async with transaction:
                rows.add(transaction.msg_id)
                raise ConnectionError("the database went away during COMMIT")

        with pytest.raises(ConnectionError):
            await pay()
        assert transaction.result is not None
        assert transaction.result.state is LocalTransactionState.UNKNOW
        await eventually_bodies(asking.namesrv, topic, [b"row"])
