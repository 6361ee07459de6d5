"""RocketMQ's admin tools on PocketMQ: groups, clients, offsets."""

import json
import re

from pocketmq.client.blocking import PullConsumer
from tests.interop.mqadmin import Output
from tests.interop.mqadmin_site import (
    BEHIND,
    MESSAGES,
    ONLINE,
    PER_QUEUE,
    PRODUCERS,
    QUEUES,
    READ,
    TOPIC,
    Site,
    queue_name,
)
from tests.interop.python_side import new_name, push_consumer


def a_group(mq: Site) -> str:
    """Return a new group without members that has committed ``READ`` of each queue of ``TOPIC``."""
    group = new_name("CID")
    with PullConsumer(group, mq.server.namesrv) as consumer:
        queues = consumer.queues(TOPIC)
        consumer.seek(queues, "earliest")
        consumer.commit(dict.fromkeys(queues, READ))
    return group


def offsets(mq: Site, group: str) -> set[int]:
    """Return the different offsets that a group has in ``TOPIC``, read by our SDK."""
    return {each.consumer_offset for each in mq.group(group).queues if each.queue.topic == TOPIC}


def progress(output: Output) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Return (broker name, queue id) → (broker offset, consumer offset, diff) of ``TOPIC``."""
    return {
        (row["Broker Name"], int(row["QID"])): (
            int(row["Broker Offset"]),
            int(row["Consumer Offset"]),
            int(row["Diff"]),
        )
        for row in output.rows
        if row["Topic"] == TOPIC
    }


def test_progress_of_one_group(mq: Site) -> None:
    """Queue by queue and in sum it equals our SDK's numbers."""
    for group, consumed in ((BEHIND, READ), (ONLINE, PER_QUEUE)):
        output = mq.admin.ok("consumerProgress", "-g", group)
        ours = {
            queue_name(each.queue): (each.broker_offset, each.consumer_offset, each.lag)
            for each in mq.group(group).queues
            if each.queue.topic == TOPIC
        }
        assert progress(output) == ours
        assert set(ours.values()) == {(PER_QUEUE, consumed, PER_QUEUE - consumed)}
        total = next(line for line in output.lines if "Diff Total" in line)
        assert int(total.split(":")[1]) == mq.group(group).lag
        if mq.admin.is_5:
            assert "Consume Inflight Total: 0" in output.out


def test_progress_of_all_groups(mq: Site) -> None:
    """One line per group: members, kind, lag."""
    lines = {line.split()[0]: line.split() for line in mq.admin.ok("consumerProgress").lines}
    assert lines[ONLINE][1:5] == ["1", "V4_9_8", "PUSH", "CLUSTERING"]
    assert lines[ONLINE][-1] == "0"
    assert (lines[BEHIND][1], lines[BEHIND][-1]) == ("0", str(MESSAGES - READ * QUEUES))


def test_progress_with_the_clients(mq: Site) -> None:
    """The broker asks each client for its queues."""
    rows = mq.admin.ok("consumerProgress", "-g", ONLINE, "-s", "true").rows
    holders = {row["Client IP"] for row in rows if row["Topic"] == TOPIC}
    assert len(holders) == 1
    assert holders.pop() in mq.client_id


def test_progress_of_nobody(mq: Site) -> None:
    """RocketMQ's answer for a group that never existed."""
    assert "CODE: 17" in mq.admin.run("consumerProgress", "-g", "CID_nobody").err


def test_connections(mq: Site) -> None:
    """Members of a consumer group with their subscriptions, and of a producer group."""
    output = mq.admin.ok("consumerConnection", "-g", ONLINE)
    [row] = output.rows
    assert row["ClientId"] == mq.client_id
    assert (row["Language"], row["Version"]) == ("PYTHON", "V4_9_8")
    assert {line.split()[0] for line in output.lines if line.endswith("*")} == {TOPIC, f"%RETRY%{ONLINE}"}
    assert {"ConsumeType: CONSUME_PASSIVELY", "MessageModel: CLUSTERING"} <= set(output.lines)
    assert "PYTHON" in mq.admin.ok("producerConnection", "-g", PRODUCERS, "-t", TOPIC).lines[0]
    error = mq.admin.run("producerConnection", "-g", "PID_nobody", "-t", TOPIC).err
    assert "CODE: 1  DESC: the producer group[PID_nobody] not exist" in error


def test_all_producers(mq: Site) -> None:
    """Every producer group of a broker with its clients."""
    text = mq.admin.ok("producer", "-b", mq.server.broker).out
    [line] = [line for line in text.splitlines() if PRODUCERS in line]
    assert "language=PYTHON" in line
    assert "version=409" in line


def test_consumer_status(mq: Site) -> None:
    """A running consumer's description of itself, with its queues, is written to a file."""
    output = mq.admin.ok("consumerStatus", "-g", ONLINE)
    assert mq.client_id in output.out
    assert "Rebalance OK" in output.out
    assert "Same subscription in the same group of consumer" in output.out
    told = mq.admin.ok("consumerStatus", "-g", ONLINE, "-i", mq.client_id, "-s").out
    assert re.search(rf"{TOPIC}\s+broker-a\s+0\s", told), told
    assert "PROP_CONSUME_TYPE" in told


def test_reset_of_offsets_by_time(mq: Site) -> None:
    """To the beginning, to the end, to a time; a group without members finds the new offsets."""
    group = a_group(mq)
    for time, forced, expected in (
        ("0", "true", 0),
        ("now", "true", PER_QUEUE),
        ("0", "false", 0),
        ("-1", "true", PER_QUEUE),
    ):
        output = mq.admin.ok("resetOffsetByTime", "-g", group, "-t", TOPIC, "-s", time, "-f", forced)
        assert {int(row["queueId"]): int(row["offset"]) for row in output.rows} == dict.fromkeys(
            range(QUEUES), expected
        ), output
        assert offsets(mq, group) == {expected}


def test_reset_moves_a_running_consumer(mq: Site) -> None:
    """Its member gets all messages once more."""
    group = new_name("CID_running")
    with push_consumer(mq.server.namesrv, group, TOPIC) as (_, collected):
        collected.wait_for(MESSAGES)
        mq.admin.ok("resetOffsetByTime", "-g", group, "-t", TOPIC, "-s", "0")
        collected.wait_for(2 * MESSAGES)
    assert sorted(collected.bodies()) == sorted(f"body-{index}" for index in [*range(MESSAGES), *range(MESSAGES)])


def test_skip_what_has_gathered(mq: Site) -> None:
    """Every queue moves to its end."""
    group = a_group(mq)
    output = mq.admin.ok("skipAccumulatedMessage", "-g", group, "-t", TOPIC)
    assert {int(row["offset"]) for row in output.rows} == {PER_QUEUE}
    assert offsets(mq, group) == {PER_QUEUE}


def test_clone_of_offsets(mq: Site) -> None:
    """Another group gets the same offsets."""
    group, copy = a_group(mq), new_name("CID_copy")
    output = mq.admin.ok("cloneGroupOffset", "-s", group, "-d", copy, "-t", TOPIC)
    assert f"clone group offset success. srcGroup[{group}], destGroup=[{copy}], topic[{TOPIC}]" in output.out
    assert offsets(mq, copy) == {READ}


def test_settings_of_a_group(mq: Site) -> None:
    """They are created, shown and deleted."""
    group = new_name("CID_made")
    output = mq.admin.ok("updateSubGroup", "-b", mq.server.broker, "-g", group, "-r", "3", "-s", "false")
    assert f"create subscription group to {mq.server.broker} success." in output.out
    settings = mq.admin.ok("getConsumerConfig", "-g", group).settings
    assert (settings["groupName"], settings["retryMaxTimes"], settings["consumeEnable"]) == (group, "3", "false")
    mq.admin.ok("updateSubGroup", "-c", "DefaultCluster", "-g", group, "-r", "5")
    assert mq.admin.ok("getConsumerConfig", "-g", group).settings["retryMaxTimes"] == "5"
    output = mq.admin.ok("deleteSubGroup", "-b", mq.server.broker, "-g", group)
    assert f"delete subscription group [{group}] from broker [{mq.server.broker}] success." in output.out
    assert group not in mq.ask(lambda admin: admin.groups())


def test_a_group_is_deleted_with_its_offsets(mq: Site) -> None:
    """By the cluster's name, with the topics of its retries."""
    group = a_group(mq)
    output = mq.admin.ok("deleteSubGroup", "-c", "DefaultCluster", "-g", group, "-r", "true")
    assert f"delete subscription group [{group}] from broker [{mq.server.broker}] in cluster" in output.out
    assert group not in mq.ask(lambda admin: admin.groups())


def test_groups_by_a_list(mq: Site) -> None:
    """5.3: several groups from a file, in one request."""
    if not mq.admin.is_5:
        assert mq.admin.run("updateSubGroupList").out.strip() == "The sub command updateSubGroupList not exist."
        return
    names = [new_name("CID_listed") for _ in range(2)]
    file = mq.admin.directory / "groups.json"
    file.write_text(json.dumps([{"groupName": name, "retryMaxTimes": 7} for name in names]))
    mq.admin.ok("updateSubGroupList", "-b", mq.server.broker, "-f", str(file))
    for name in names:
        assert mq.admin.ok("getConsumerConfig", "-g", name).settings["retryMaxTimes"] == "7"


def test_consume_stats_of_a_broker(mq: Site) -> None:
    """All groups of one broker, or only those above a level."""
    output = mq.admin.ok("brokerConsumeStats", "-b", mq.server.broker)
    rows = [row for row in output.rows if row["Group"] == BEHIND]
    assert {(row["Topic"], row["Consumer Offset"], row["Diff"]) for row in rows} == {
        (TOPIC, str(READ), str(PER_QUEUE - READ))
    }
    above = mq.admin.ok("brokerConsumeStats", "-b", mq.server.broker, "-l", "1").out
    assert BEHIND in above
    assert f" {ONLINE} " not in above


def test_calls_that_no_command_makes(mq: Site) -> None:
    """Consoles use more of RocketMQ's admin API than its commands: times, cloned offsets, subscriptions."""
    spans = json.loads(mq.admin.ok("api", "queryConsumeTimeSpan", TOPIC, BEHIND).out)
    assert {span["messageQueue"]["queueId"] for span in spans} == set(range(QUEUES))
    for span in spans:
        assert 0 < span["minTimeStamp"] <= span["consumeTimeStamp"] < span["maxTimeStamp"]
        assert span["delayTime"] > 0
    group = new_name("CID_api")
    mq.admin.ok("api", "cloneGroupOffset", BEHIND, group, TOPIC, "true")
    assert offsets(mq, group) == {READ}
    if mq.admin.is_5:
        topics = json.loads(mq.admin.ok("api", "queryTopicsByConsumer", ONLINE).out)["topicList"]
        assert TOPIC in topics
        subscription = json.loads(mq.admin.ok("api", "querySubscription", ONLINE, TOPIC).out)
        assert (subscription["topic"], subscription["subString"]) == (TOPIC, "*")
