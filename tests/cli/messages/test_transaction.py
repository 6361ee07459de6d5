"""``pocketmq transaction list | end | resume`` against a real broker."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pocketmq.cli.messages.transaction import build_app
from pocketmq.client import BrokerAnswerError, Message, PullConsumer, TransactionProducer
from pocketmq.common.errors import MessageIllegal
from pocketmq.testing import PocketBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    """Start a broker that gives up after one check."""
    settings = {"transaction_time_out": 1, "transaction_check_interval": 20, "transaction_check_max": 1}
    with PocketBroker(broker=settings) as running:
        yield running


def run(broker: PocketBroker, *arguments: object) -> Result:
    result = CliRunner().invoke(build_app(), [*map(str, arguments), "--namesrv", broker.namesrv])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


async def leave_open(broker: PocketBroker, **options: Any) -> str:
    """Leave a half message without a decision; return its id."""

    async def check(message: Any) -> None:
        return None

    async with TransactionProducer("ledger", broker.namesrv, check=check) as producer:
        result = await producer.send_in_transaction(Message("Paid", b"x"), lambda message: None, **options)
        async with asyncio.timeout(60):
            while not options and producer.checks.checked < 1:  # noqa: ASYNC110  a counter, without an event
                await asyncio.sleep(0.005)
        return result.msg_id


def test_open_ones_are_listed_and_given_up_ones_resumed(broker: PocketBroker) -> None:
    """The list has topic, group, id, age and checks; a given-up message is checked again once resumed."""
    msg_id = asyncio.run(leave_open(broker, check_immunity_sec=600))
    (row,) = json.loads(run(broker, "list", "--json").stdout)
    assert (row["topic"], row["group"], row["msg_id"], row["checks"]) == ("Paid", "ledger", msg_id, 0)
    assert "ledger" in run(broker, "list", "--broker", "pocket").stdout
    given_up = asyncio.run(leave_open(broker))

    async def copy() -> Any:
        async with PullConsumer(group="look", namesrv=broker.namesrv) as consumer:
            async for message in consumer.stream("TRANS_CHECK_MAX_TIME_TOPIC", start="earliest"):
                return message
        raise AssertionError("the stream has no end")

    message = asyncio.run(copy())
    assert message.msg_id == given_up
    run(broker, "resume", message.offset_msg_id)
    deadline = time.monotonic() + 60
    while len(json.loads(run(broker, "list", "--json").stdout)) != 2:
        assert time.monotonic() < deadline
    with pytest.raises(BrokerAnswerError, match="not resumed"):
        run(broker, "resume", message.offset_msg_id[:16] + "0" * 16)
    with pytest.raises(MessageIllegal, match="no master"):
        run(broker, "resume", "0" * 32)


def test_open_ones_are_ended_by_hand(broker: PocketBroker) -> None:
    """Those of one group, or one of them; what is ended is gone from the list, and a commit delivers."""

    async def leave(group: str, count: int) -> None:
        async with TransactionProducer(group, broker.namesrv, check=lambda message: None) as producer:
            for number in range(count):
                body = Message("Ended", b"%d" % number)
                await producer.send_in_transaction(body, lambda message: None, check_immunity_sec=600)

    def open_of(group: str) -> list[Any]:
        rows = json.loads(run(broker, "list", "--json").stdout)
        return [row["half_offset"] for row in rows if row["group"] == group]

    asyncio.run(leave("gone", 3))
    asyncio.run(leave("kept", 1))
    first, *others = open_of("gone")
    (row,) = json.loads(run(broker, "end", "-g", "gone", "--half-offset", first, "--commit", "--yes", "--json").stdout)
    assert (row["half_offset"], row["topic"], row["result"]) == (first, "Ended", "committed")
    assert run(broker, "end", "-g", "gone", "--older-than", 3600, "--rollback", "--json").stdout.strip() == "[]"
    assert open_of("gone") == others
    rows = json.loads(run(broker, "end", "-g", "gone", "--rollback", "--yes", "--json").stdout)
    assert [each["result"] for each in rows] == ["rolled back"] * 2
    assert (open_of("gone"), len(open_of("kept"))) == ([], 1)

    async def delivered() -> bytes:
        async with PullConsumer(group="look", namesrv=broker.namesrv) as consumer:
            async for message in consumer.stream("Ended", start="earliest"):
                return message.body
        raise AssertionError("the stream has no end")

    assert asyncio.run(delivered()) == b"0"
