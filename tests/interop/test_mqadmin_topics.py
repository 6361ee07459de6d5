"""RocketMQ's admin tools on PocketMQ: the cluster, its topics, and the name server."""

import json

from tests.interop.mqadmin import Output
from tests.interop.mqadmin_site import BEHIND, MESSAGES, ONLINE, PER_QUEUE, QUEUES, READ, TOPIC, Site, queue_name
from tests.interop.python_side import new_name


def status_rows(output: Output) -> dict[tuple[str, int], tuple[int, int]]:
    """Return (broker name, queue id) → (min offset, max offset) of topicStatus."""
    return {
        (row["Broker Name"], int(row["QID"])): (int(row["Min Offset"]), int(row["Max Offset"])) for row in output.rows
    }


def test_cluster_list(mq: Site) -> None:
    """One line per broker: name, id, address, version, messages in and out, the used share of the disk."""
    [_, line] = mq.admin.ok("clusterList").lines
    cluster, name, broker_id, address, version, *numbers = line.split()
    assert (cluster, name, broker_id, address) == ("DefaultCluster", "broker-a", "0", mq.server.broker)
    assert version == "V4_9_8"
    runtime = mq.ask(lambda admin: admin.broker_runtime(mq.server.broker))
    shares = [float(number) for number in numbers if number.replace(".", "", 1).isdigit()]
    assert any(abs(share - float(runtime["commitLogDiskRatio"])) < 0.05 for share in shares), line
    if mq.admin.is_5:
        assert numbers[-1] == "true", "ACTIVATED"


def test_cluster_list_with_totals(mq: Site) -> None:
    """Messages in and out, since yesterday and today."""
    [row] = mq.admin.ok("clusterList", "-m").rows
    runtime = mq.ask(lambda admin: admin.broker_runtime(mq.server.broker))
    assert int(row["InTotalToday"]) == int(runtime["msgPutTotalTodayNow"]) >= MESSAGES
    assert int(row["OutTotalToday"]) == int(runtime["msgGetTotalTodayNow"]) >= MESSAGES
    assert (row["InTotalYest"], row["OutTotalYest"]) == ("0", "0")


def test_topic_list(mq: Site) -> None:
    """Every topic of our SDK's list, and RocketMQ's own."""
    listed = set(mq.admin.ok("topicList").lines)
    assert set(mq.topics()) <= listed
    assert {TOPIC, "TBW102", "SCHEDULE_TOPIC_XXXX", f"%RETRY%{ONLINE}"} <= listed


def test_topic_list_with_groups(mq: Site) -> None:
    """The groups of each topic, those online and those with offsets."""
    lines = [line.split() for line in mq.admin.ok("topicList", "-c").lines]
    assert {line[2] for line in lines if line[1:2] == [TOPIC] and len(line) > 2} >= {ONLINE, BEHIND}
    assert {tuple(line[:1]) for line in lines[1:]} == {("DefaultCluster",)}


def test_topic_route(mq: Site) -> None:
    """The route as JSON, in RocketMQ's own form with bare numbers as keys."""
    text = mq.admin.ok("topicRoute", "-t", TOPIC).out
    route = json.loads(text.replace("{0:", '{"0":'))
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": mq.server.broker}
    [queues] = route["queueDatas"]
    assert (queues["brokerName"], queues["readQueueNums"], queues["writeQueueNums"]) == ("broker-a", QUEUES, QUEUES)
    [row] = mq.admin.ok("topicRoute", "-t", TOPIC, "-l").rows[:1]
    assert (row["BrokerAddrs"], row["ReadQueue"], row["Perm"]) == (f"{{0={mq.server.broker}}}", str(QUEUES), "6")


def test_a_topic_without_a_route(mq: Site) -> None:
    """RocketMQ's code and text."""
    error = mq.admin.run("topicRoute", "-t", "Nope").err
    assert "CODE: 17  DESC: No topic route info in name server for the topic: Nope" in error


def test_topic_status(mq: Site) -> None:
    """Each queue's offsets equal those of our SDK."""
    told = status_rows(mq.admin.ok("topicStatus", "-t", TOPIC))
    ours = {queue_name(each.queue): (each.min_offset, each.max_offset) for each in mq.topic(TOPIC).queues}
    assert told == ours
    assert set(told.values()) == {(0, PER_QUEUE)}


def test_topic_cluster_list(mq: Site) -> None:
    """The clusters that have the topic."""
    assert mq.admin.ok("topicClusterList", "-t", TOPIC).lines == ["DefaultCluster"]


def test_a_topic_is_made_changed_and_deleted(mq: Site) -> None:
    """By the broker's address and by the cluster's name; our SDK finds the settings that the tools print."""
    one, other = new_name("ByBroker"), new_name("ByCluster")
    output = mq.admin.ok("updateTopic", "-b", mq.server.broker, "-t", one, "-r", "3", "-w", "2")
    assert output.lines[0] == f"create topic to {mq.server.broker} success."
    assert f"topicName={one}, readQueueNums=3, writeQueueNums=2, perm=RW-" in output.out
    assert len(mq.topic(one).route.write_queues) == 2
    assert len(mq.topic(one).route.read_queues) == 3
    output = mq.admin.ok("updateTopic", "-c", "DefaultCluster", "-t", other, "-r", "2", "-w", "2", "-o", "true")
    assert "set cluster orderConf. isOrder=true, orderConf=[broker-a:2]" in output.out
    assert "get orderConf success. topic=" in mq.admin.ok("updateOrderConf", "-t", other, "-m", "get").out
    assert "success" in mq.admin.ok("updateOrderConf", "-t", other, "-m", "put", "-v", "broker-a:2").out
    assert "success" in mq.admin.ok("updateOrderConf", "-t", other, "-m", "delete").out
    output = mq.admin.ok("updateTopicPerm", "-b", mq.server.broker, "-t", one, "-p", "4")
    assert output.lines[0] == f"update topic perm from 6 to 4 in {mq.server.broker} success."
    assert mq.topic(one).perms == {"broker-a": 4}
    for topic in (one, other):
        output = mq.admin.ok("deleteTopic", "-c", "DefaultCluster", "-t", topic)
        assert output.lines == [
            f"delete topic [{topic}] from cluster [DefaultCluster] success.",
            f"delete topic [{topic}] from NameServer success.",
        ]
    assert not {one, other} & set(mq.topics())


def test_a_system_topic_is_not_changed(mq: Site) -> None:
    """RocketMQ's refusal."""
    output = mq.admin.run("updateTopic", "-b", mq.server.broker, "-t", "TBW102", "-r", "1", "-w", "1")
    assert "is conflict with system topic" in output.err + output.out


def test_topics_by_a_list(mq: Site) -> None:
    """5.3: several topics from a file, in one request."""
    if not mq.admin.is_5:
        assert mq.admin.run("updateTopicList").out.strip() == "The sub command updateTopicList not exist."
        return
    names = [new_name("Listed") for _ in range(2)]
    file = mq.admin.directory / "topics.json"
    file.write_text(json.dumps([{"topicName": name, "readQueueNums": 2, "writeQueueNums": 2} for name in names]))
    output = mq.admin.ok("updateTopicList", "-b", mq.server.broker, "-f", str(file))
    assert f"submit batch of topic config to {mq.server.broker} success" in output.out
    for name in names:
        assert len(mq.topic(name).queues) == 2
        mq.admin.ok("deleteTopic", "-c", "DefaultCluster", "-t", name)


def test_allocate_mq(mq: Site) -> None:
    """The queues of a topic, shared among addresses."""
    shares = json.loads(mq.admin.ok("allocateMQ", "-t", TOPIC, "-i", "10.0.0.1,10.0.0.2").out)["result"]
    assert sorted(queue["queueId"] for share in shares.values() for queue in share) == list(range(QUEUES))


def test_stats_all(mq: Site) -> None:
    """Messages into a topic, messages to its groups, and their lag."""
    rows = {row["Consumer Group"]: row for row in mq.admin.ok("statsAll", "-t", TOPIC).rows}
    assert int(rows[ONLINE]["Accumulation"]) == mq.group(ONLINE).lag == 0
    assert int(rows[BEHIND]["Accumulation"]) == mq.group(BEHIND).lag == MESSAGES - READ * QUEUES
    assert int(rows[ONLINE]["InMsg24Hour"]) == MESSAGES
    assert int(rows[ONLINE]["OutMsg24Hour"]) >= MESSAGES
    assert TOPIC in mq.admin.ok("statsAll").out
    assert "Accumulation" in mq.admin.ok("statsAll", "-a").out


def test_write_permission_of_a_broker(mq: Site) -> None:
    """Removed at the name server and restored, for every topic."""
    output = mq.admin.ok("wipeWritePerm", "-b", "broker-a")
    assert f"wipe write perm of broker[broker-a] in name server[{mq.server.namesrv}] OK" in output.out
    try:
        [row] = mq.admin.ok("topicRoute", "-t", TOPIC, "-l").rows[:1]
        assert row["Perm"] == "4"
    finally:
        output = mq.admin.ok("addWritePerm", "-b", "broker-a")
    assert f"add write perm of broker[broker-a] in name server[{mq.server.namesrv}] OK" in output.out
    assert mq.topic(TOPIC).perms == {"broker-a": 6}


def test_settings_of_the_name_server(mq: Site) -> None:
    """They are shown; they cannot be changed while it runs, and the answer names the cure."""
    settings = mq.admin.ok("getNamesrvConfig").settings
    assert settings["listenPort"] == mq.server.namesrv.rsplit(":", 1)[1]
    assert settings["scanNotActiveBrokerInterval"] == "10000"
    error = mq.admin.run("updateNamesrvConfig", "-k", "brokersMax", "-v", "9").err
    assert "CODE: 3  DESC:  request type 318 not supported: settings are read at the start" in error


def test_key_value_settings(mq: Site) -> None:
    """They are put and deleted at the name server."""
    assert "success" in mq.admin.ok("updateKvConfig", "-s", "NS", "-k", "k", "-v", "v").out
    assert "success" in mq.admin.ok("deleteKvConfig", "-s", "NS", "-k", "k").out
