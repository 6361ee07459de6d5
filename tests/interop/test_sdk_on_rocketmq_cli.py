"""The command line against RocketMQ's servers: working commands, and sentences for features that RocketMQ lacks."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

from pocketmq.client import Message, Producer, PullConsumer
from tests.interop.rocketmq_servers import RocketMQServers
from tests.interop.sdk_on_rocketmq import new_name, new_topic


def pocketmq(servers: RocketMQServers, *arguments: str, text: str = "", code: int = 0) -> str:
    """Run a command, check its exit code and that there is no traceback; return its standard output and error."""
    done = subprocess.run(
        [sys.executable, "-m", "pocketmq.cli.main", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "POCKETMQ_NAMESRV": servers.namesrv, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    output = done.stdout + done.stderr
    assert "Traceback" not in output, output
    assert done.returncode == code, output
    return output


def test_topics_are_made_filled_described_read_and_deleted(rocketmq: RocketMQServers) -> None:
    """topic create (and again), produce, topic list and describe, consume, message query and get, topic delete."""
    topic = new_name("cli")
    assert f"created {topic}: 2 queues on " in pocketmq(rocketmq, "topic", "create", topic, "--queues", "2")
    assert f"{topic} exists already: 2 queues on " in pocketmq(rocketmq, "topic", "create", topic)
    assert "asked for: 4 queues" in pocketmq(rocketmq, "topic", "create", topic, "--queues", "4", code=1)
    changed = pocketmq(rocketmq, "topic", "create", topic, "--queues", "4", "--update")
    assert "2 queues, permission RW -> 4 queues, permission RW" in changed
    pocketmq(rocketmq, "topic", "create", topic, "--queues", "2", "--update")
    sent = json.loads(pocketmq(rocketmq, "produce", topic, "--json", text="one\ntwo\nthree\n").splitlines()[0])
    assert (sent["sent"], sent["statuses"]) == (3, {"SEND_OK": 3})
    assert f"{topic}\t2\tRW-\t3" in pocketmq(rocketmq, "topic", "list")
    rows = [row.split("\t") for row in pocketmq(rocketmq, "topic", "describe", topic).splitlines()[1:]]
    assert sum(int(row[5]) for row in rows) == 3
    queue_id = next(row[1] for row in rows if int(row[5]))
    got = pocketmq(rocketmq, "consume", topic, "--from", "earliest", "-n", "3")
    assert {"one", "two", "three"} <= set(got.split())
    found = pocketmq(rocketmq, "message", "get", f"{topic}/{queue_id}/0", "--json")
    assert json.loads(found.splitlines()[0])["topic"] == topic
    pocketmq(rocketmq, "topic", "delete", topic, "--yes")
    assert f"{topic}\t" not in pocketmq(rocketmq, "topic", "list")


async def test_groups_are_listed_described_and_moved(rocketmq: RocketMQServers) -> None:
    """group list, describe and seek have the numbers of the consumer itself."""
    topic, group = await new_topic(rocketmq, 1), new_name("cli-group")
    async with Producer(new_name("producer"), rocketmq.namesrv) as producer:
        await producer.send_batch([Message(topic, b"x", keys="findme") for _ in range(5)])
    async with PullConsumer(group, rocketmq.namesrv) as consumer:
        await consumer.poll(topic, max_messages=2)
        await consumer.commit()

    def check() -> None:
        assert group in pocketmq(rocketmq, "group", "list")
        (row,) = json.loads(pocketmq(rocketmq, "group", "describe", group, "--json").splitlines()[0])["queues"]
        assert (row["consumer_offset"], row["broker_offset"]) == (2, 5)
        pocketmq(rocketmq, "group", "seek", group, "--yes", "--create", "--topic", topic, "--to", "earliest")
        (row,) = json.loads(pocketmq(rocketmq, "group", "describe", group, "--json").splitlines()[0])["queues"]
        assert row["consumer_offset"] == 0
        assert pocketmq(rocketmq, "message", "query", topic, "--key", "findme").count(topic) == 5

    await asyncio.to_thread(check)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("ha", "status"), 0, "ROCKETMQ"),
        (("ha", "promote", "rocketmq-a"), 1, "mqadmin haStatus"),
        (("ha", "demote", "rocketmq-a"), 1, "mqadmin haStatus"),
        (("ha", "accept-loss", "rocketmq-a", "--yes"), 1, "mqadmin haStatus"),
        (("transaction", "list"), 1, "a RocketMQ broker does not list them"),
        (("lock", "list"), 1, "a RocketMQ broker writes them into its lock.log only"),
        (("doctor",), None, "RocketMQ has no telemetry"),
        (("dlq", "list"), 0, ""),
        (("dlq", "show", "nobody"), 1, "no dead letters of nobody"),
    ],
)
def test_what_rocketmq_does_not_have_is_reported_in_a_sentence(
    rocketmq: RocketMQServers, arguments: tuple[str, ...], code: int | None, says: str
) -> None:
    """Replication, open transactions, locks and stage times are PocketMQ's own; mqadmin or a file shows RocketMQ's."""
    if code is None:  # doctor's exit code depends on this machine's disk, too
        done = subprocess.run(
            [sys.executable, "-m", "pocketmq.cli.main", *arguments, "--namesrv", rocketmq.namesrv],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        output = done.stdout + done.stderr
        assert "Traceback" not in output
    else:
        output = pocketmq(rocketmq, *arguments, code=code)
    assert says in output


async def test_a_message_that_is_no_given_up_half_is_not_resumed(rocketmq: RocketMQServers) -> None:
    """RocketMQ would make a half message of any message that the id names."""
    topic = await new_topic(rocketmq, 1)
    async with Producer(new_name("producer"), rocketmq.namesrv) as producer:
        receipt = await producer.send(Message(topic, b"x"))
    output = await asyncio.to_thread(pocketmq, rocketmq, "transaction", "resume", receipt.offset_msg_id, code=1)
    assert f"the message is of topic {topic}" in output
