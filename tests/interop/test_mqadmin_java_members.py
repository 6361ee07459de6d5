"""RocketMQ's admin tools on PocketMQ, when RocketMQ's own clients are the members of a group."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.java_clients import JavaClients, java_clients
from tests.interop.mqadmin_site import MESSAGES, PER_QUEUE, QUEUES, TOPIC, Site
from tests.interop.python_side import new_name

JAVA_VERSIONS = {"4.9": ("V4_9_8", "409"), "5.3": ("V5_3_3", "479")}


@pytest.fixture
def members(mq: Site, tmp_path: Path) -> Iterator[JavaClients]:
    """Start RocketMQ's clients of the same version as the tools."""
    version = "5.3" if mq.admin.is_5 else "4.9"
    with java_clients(version, "JSON", mq.server.namesrv, tmp_path) as clients:
        yield clients


def test_a_java_consumer_is_looked_at(mq: Site, members: JavaClients) -> None:
    """Its connection, its description of itself, its queues, a message by hand."""
    group, version = new_name("CID_java"), JAVA_VERSIONS[members.version][0]
    with members.started("push", group=group, topic=TOPIC) as consumer:
        members.received(consumer, MESSAGES)
        [row] = mq.admin.ok("consumerConnection", "-g", group).rows
        assert (row["Language"], row["Version"]) == ("JAVA", version)
        client_id = row["ClientId"]
        status = mq.admin.run("consumerStatus", "-g", group, "-i", client_id, "-s").out
        assert "PROP_CLIENT_VERSION" in status
        assert version in status
        assert "java.lang.Thread" in status, "the stacks of its threads"
        assert "Rebalance OK" in mq.admin.ok("consumerStatus", "-g", group).out
        holders = mq.admin.ok("consumerProgress", "-g", group, "-s", "true", within_s=20).rows  # it commits every 5 s
        assert {row["Client IP"] for row in holders if row["Topic"] == TOPIC} == {client_id.split("@")[0]}
        unique = mq.receipts[0].msg_id
        handed = mq.admin.ok("queryMsgByUniqueKey", "-i", unique, "-t", TOPIC, "-g", group, "-d", client_id)
        assert "consumeResult=CR_SUCCESS" in handed.out


def test_a_reset_moves_a_java_consumer(mq: Site, members: JavaClients) -> None:
    """It gets all messages once more. One version suffices: RocketMQ's clients wait 10 s before they start again."""
    if not mq.admin.is_5:
        return
    group = new_name("CID_java")
    with members.started("push", group=group, topic=TOPIC) as consumer:
        members.received(consumer, MESSAGES)
        output = mq.admin.ok("resetOffsetByTime", "-g", group, "-t", TOPIC, "-s", "0")
        assert {int(row["queueId"]) for row in output.rows} == set(range(QUEUES))
        again = members.received(consumer, 2 * MESSAGES)[MESSAGES:]
        assert sorted(row["body"] for row in again) == sorted(f"body-{index}" for index in range(MESSAGES))
    ours = {each.consumer_offset for each in mq.group(group).queues if each.queue.topic == TOPIC}
    assert ours == {PER_QUEUE}


def test_a_java_producer_is_listed(mq: Site, members: JavaClients) -> None:
    """By its group, and among all producers."""
    group = new_name("PID_java")
    language_and_version = ("JAVA", JAVA_VERSIONS[members.version])
    with members.started("producer", group=group) as producer:
        members.send(producer, topic=new_name("FromJava"), body="x", count=1)
        listed: list[str] = []
        deadline = time.monotonic() + 40  # its first heartbeat may come 30 s after its first send
        while not listed and time.monotonic() < deadline:
            output = mq.admin.ok("producer", "-b", mq.server.broker).out
            listed = [line for line in output.splitlines() if group in line]
            time.sleep(0.2)
        assert len(listed) == 1
        assert f"language={language_and_version[0]}" in listed[0]
        assert f"version={language_and_version[1][1]}" in listed[0]
        one = mq.admin.ok("producerConnection", "-g", group, "-t", TOPIC).out
        assert language_and_version[1][0] in one
