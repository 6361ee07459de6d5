"""``pocketmq brokers``: a row for each broker that the name server knows."""

import json
from typing import Any

import pytest

from pocketmq.cli.admin.brokers import broker_row
from pocketmq.client.admin.admin import Admin
from pocketmq.client.blocking import Producer
from pocketmq.common.message import Message
from pocketmq.remoting.errors import ConnectFailed
from pocketmq.testing.broker import PocketBroker


def test_brokers_are_listed_with_what_they_are_and_what_they_stored(run_command: Any) -> None:
    """Messages in are counted since the broker's start."""
    with PocketBroker() as broker:
        with Producer("p", namesrv=broker.namesrv) as producer:
            producer.send(Message("Orders", b"1"))
        address = broker.address
        done = run_command("brokers", "--json", "--namesrv", broker.namesrv)
        table = run_command("brokers", "--namesrv", broker.namesrv)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["broker"], row["id"], row["role"], row["state"]) == ("pocket", 0, "master", "answers")
    assert row["address"] == address
    assert row["version"].startswith("PocketMQ (as V4")
    assert (row["in"], row["out"]) == (1, 0)
    assert address.encode() in table.stdout


def test_a_broker_that_does_not_answer_is_listed_with_the_reason(
    run_command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server knows a dead broker for a while: the others are listed all the same."""

    async def refused(self: Admin, address: str) -> dict[str, str]:
        raise ConnectFailed(f"cannot connect to {address}", why="connection refused")

    monkeypatch.setattr(Admin, "broker_runtime", refused)
    with PocketBroker() as broker:
        done = run_command("brokers", "--json", "--namesrv", broker.namesrv)
    (row,) = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert "connection refused" in row["state"]
    assert (row["version"], row["in"], row["out"]) == ("-", "-", "-")


def test_a_broker_that_leaves_out_a_number_is_listed() -> None:
    """RocketMQ's runtime tables differ with its versions."""
    row = broker_row("broker-a", 2, "127.0.0.1:1", {"msgPutTotalTodayNow": "many"})
    assert row == ("broker-a", 2, "slave", "127.0.0.1:1", "-", "many", "-", "answers")
    assert broker_row("b", 0, "127.0.0.1:1", {"brokerVersionDesc": "V5_3_3"})[4] == "RocketMQ V5_3_3"
