"""``pocketmq message get | query`` against a real broker."""

import asyncio
import json
import signal
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from pocketmq.cli.messages.message import build_app
from pocketmq.client import Message, Producer, Receipt
from pocketmq.common.errors import ConfigError, PocketMQError
from pocketmq.testing import PocketBroker
from tests.cli.conftest import RunCommand, StartDaemon, until_registered


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    """Start one broker for all tests of this file."""
    with PocketBroker() as running:
        yield running


@pytest.fixture(scope="module")
def sent(broker: PocketBroker) -> list[Receipt]:
    """Send three messages to topic Orders, two of them with the key ``k1``."""

    async def body() -> list[Receipt]:
        async with Producer(group="test", namesrv=broker.namesrv) as producer:
            return [
                await producer.send(Message("Orders", b"first", keys="k1", tags="a")),
                await producer.send(Message("Orders", b"second \x1b[2J", keys="k1 k2")),
                await producer.send(Message("Orders", b"\xff\x00", keys="k3")),
            ]

    return asyncio.run(body())


def run(broker: PocketBroker, *arguments: object) -> Result:
    result = CliRunner().invoke(build_app(), [*map(str, arguments), "--namesrv", broker.namesrv])
    if isinstance(result.exception, PocketMQError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def test_query_finds_by_key_and_unique_id_oldest_first(broker: PocketBroker, sent: list[Receipt]) -> None:
    """Both messages of a key appear, one of a unique id; --max keeps the newest."""
    lines = [json.loads(line) for line in run(broker, "query", "Orders", "--key", "k1", "--json").stdout.splitlines()]
    assert [line["body"] for line in lines] == ["first", "second \x1b[2J"]
    line = json.loads(run(broker, "query", "Orders", "--unique-id", sent[0].msg_id, "--json").stdout)
    assert line["msg_id"] == sent[0].msg_id
    line = json.loads(run(broker, "query", "Orders", "--key", "k1", "--limit", 1, "--json").stdout)
    assert line["body"].startswith("second")


def test_get_takes_each_kind_of_id(broker: PocketBroker, sent: list[Receipt]) -> None:
    """Offset id, unique id with and without topic, and a place in a queue lead to the same message."""
    one = sent[2]
    place = f"Orders/{one.queue_id}/{one.queue_offset}"
    named = f"Orders/{one.broker}:{one.queue_id}/{one.queue_offset}"
    for message_id in (one.offset_msg_id, one.msg_id, place, named):
        assert json.loads(run(broker, "get", message_id, "--json").stdout)["msg_id"] == one.msg_id
    assert json.loads(run(broker, "get", one.msg_id, "--topic", "Orders", "--json").stdout)["body_base64"] == "/wA="


def test_a_person_sees_the_message_without_its_control_characters(broker: PocketBroker, sent: list[Receipt]) -> None:
    """Text output has ids, times, properties and the body, and no escape sequence."""
    shown = run(broker, "get", sent[1].msg_id).stdout
    assert "\x1b" not in shown
    for text in (sent[1].msg_id, "KEYS=k1 k2", "second", "stored", "born"):
        assert text in shown


def test_not_found_says_what_was_looked_at(broker: PocketBroker, sent: list[Receipt]) -> None:
    """The error names the broker, the query and the answer; for a queue also its offsets."""
    with pytest.raises(PocketMQError) as caught:
        run(broker, "query", "Orders", "--key", "nobody")
    assert "pocket" in caught.value.why
    assert "time range" in caught.value.why
    with pytest.raises(PocketMQError) as caught:
        run(broker, "query", "Orders", "--key", "k1", "--until", "1000")
    assert "1970-01-01T00:00:01" in caught.value.what
    with pytest.raises(PocketMQError) as caught:
        run(broker, "get", f"Orders/{sent[0].queue_id}/99")
    assert "the queue holds offsets" in caught.value.why
    with pytest.raises(PocketMQError) as caught:
        run(broker, "get", "Orders/999/0")
    assert "no such queue" in caught.value.why
    with pytest.raises(PocketMQError):
        run(broker, "get", "0" * 32)


def test_wrong_usage_is_reported_before_any_request(broker: PocketBroker) -> None:
    """An unknown kind of id, both or none of --key and --unique-id, a word that is no time."""
    for arguments in (
        ("get", "hello"),
        ("query", "Orders"),
        ("query", "Orders", "--key", "a", "--unique-id", "b"),
        ("query", "Orders", "--key", "a", "--from", "soon"),
    ):
        with pytest.raises(ConfigError):
            run(broker, *arguments)


def test_a_broker_without_index_says_so() -> None:
    """With message_index_enable off, the answer to a key query names the setting, not only that it found no message."""
    with PocketBroker(store={"message_index_enable": False}) as broker:

        async def body() -> None:
            async with Producer(group="test", namesrv=broker.namesrv) as producer:
                await producer.send(Message("T", b"x", keys="k"))

        asyncio.run(body())
        with pytest.raises(PocketMQError) as caught:
            run(broker, "query", "T", "--key", "k")
        assert "index of this broker is off" in caught.value.why


@pytest.mark.slow
def test_all_brokers_of_a_topic_are_asked_and_one_that_is_gone_is_reported(
    start_daemon: StartDaemon, run_command: RunCommand
) -> None:
    """A key on two brokers is found on both; with one killed, the other's messages appear with a note."""
    name_server = start_daemon("namesrv", "--namesrv-port", "0")
    brokers = {
        name: start_daemon(
            "broker",
            "--namesrv",
            name_server.namesrv,
            "--broker-port",
            "0",
            "--data-dir",
            f"data-{name}",
            "--set",
            f"broker.broker_name={name}",
            "--set",
            "store.mapped_file_size_commit_log=1048576",
        )
        for name in ("a", "b")
    }
    at = ("--namesrv", name_server.namesrv)
    until_registered(name_server.namesrv, brokers=2)
    assert run_command("topic", "create", "T", "--queues", "1", *at).returncode == 0

    async def body() -> set[str]:
        async with Producer(group="test", namesrv=name_server.namesrv) as producer:
            return {(await producer.send(Message("T", b"%d" % number, keys="k"))).broker for number in range(6)}

    assert asyncio.run(body()) == {"a", "b"}
    found = run_command("message", "query", "T", "--key", "k", "--json", *at)
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    assert sorted(line["body"] for line in lines) == ["0", "1", "2", "3", "4", "5"]
    times = [line["store_timestamp"] for line in lines]
    assert times == sorted(times)
    assert {line["broker"] for line in lines} == {"a", "b"}
    brokers["b"].end(signal.SIGKILL)
    found = run_command("message", "query", "T", "--key", "k", "--json", *at)
    assert {json.loads(line)["broker"] for line in found.stdout.splitlines()} == {"a"}
    assert found.returncode == 0
