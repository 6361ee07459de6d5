"""``pocketmq retry-store`` lists, shows, delivers and removes stored messages."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pocketmq.cli.app import RootOptions, build_app
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.durable.entry import SEQ_TIME_SHIFT, Entry, KeptMessage, encode_kept, lane_of
from pocketmq.client.durable.errors import RetryStoreLocked
from pocketmq.client.durable.opening import StoreOptions, open_url
from pocketmq.client.durable.store import Changes
from pocketmq.common.clock import SystemClock
from pocketmq.testing.broker import PocketBroker

pytest.importorskip("rocksdict")


def msg_id(number: int) -> str:
    return f"{number:032X}"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(build_app(RootOptions()), ["retry-store", *arguments])


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Make a store with a message without an order, two of a key, and one that was given up."""
    url = f"rocksdb://{tmp_path / 'retry'}"
    store = open_url(url, StoreOptions(), SystemClock())
    store.open()
    now_ms = SystemClock().now_ms()
    lane = lane_of(MessageQueue("Orders", "", -1))
    entries = []
    for number, (where, key) in enumerate((("", ""), (lane, "k"), (lane, "k"), ("", ""))):
        kept = KeptMessage(
            topic="Orders",
            body=b"body %d" % number,
            uniq_key=msg_id(number).encode(),
            sharding_key=key or None,
            order_key=key,
            why="the broker was busy\nmore",
        )
        entries.append(Entry((now_ms << SEQ_TIME_SHIFT) + number, now_ms, 0, where, key, encode_kept(kept)))
    store.write(Changes(added=entries))
    store.write(Changes(given_up=[(entries[3], "too old")]))
    store.close()
    return url


def test_list_shows_what_waits_and_what_was_given_up(url: str) -> None:
    """One row per message, with topic, id, key, lane and reason."""
    rows = json.loads(run("list", url, "--json").stdout)
    assert [(row["topic"], row["key"], row["lane"], row["why"]) for row in rows] == [
        ("Orders", "", "", "the broker was busy"),
        ("Orders", "k", "Orders//-1", "the broker was busy"),
        ("Orders", "k", "Orders//-1", "the broker was busy"),
    ]
    assert len(json.loads(run("list", url, "--json", "--limit", "2").stdout)) == 2
    [row] = json.loads(run("list", url, "--given-up", "--json").stdout)
    assert (row["msg_id"], row["why"]) == (msg_id(3), "too old")


def test_show_prints_one_message(url: str) -> None:
    """It has its body; an unknown id is an error."""
    shown = json.loads(run("show", url, msg_id(2)).stdout)
    assert (shown["body"], shown["sharding_key"], shown["state"]) == ("body 2", "k", "waiting")
    assert json.loads(run("show", url, msg_id(3)).stdout)["state"] == "given up"
    assert run("show", url, msg_id(9)).exit_code != 0


@pytest.mark.slow
def test_drain_delivers_in_order(url: str) -> None:
    """All waiting messages go to the broker; the store is empty afterwards."""
    with PocketBroker() as broker:
        done = run("drain", url, "--namesrv", broker.namesrv, "--timeout", "20s")
        assert done.exit_code == 0, done.output
    assert json.loads(run("list", url, "--json").stdout) == []
    assert len(json.loads(run("list", url, "--given-up", "--json").stdout)) == 1


def test_purge_removes_what_was_given_up_and_no_more(url: str) -> None:
    """Waiting messages go only on request; a store with an owner stays unchanged."""
    owner = open_url(url, StoreOptions(), SystemClock())
    owner.open()
    refused = run("purge", url, "--yes")
    assert isinstance(refused.exception, RetryStoreLocked)
    owner.close()
    assert run("purge", url, "--yes").exit_code == 0
    assert json.loads(run("list", url, "--given-up", "--json").stdout) == []
    assert len(json.loads(run("list", url, "--json").stdout)) == 3
    assert run("purge", url, "--yes", "--waiting").exit_code == 0
    assert json.loads(run("list", url, "--json").stdout) == []
