"""RocketMQ's admin tools on PocketMQ: the broker itself, and every command that the other modules do not run."""

import json
import re
from pathlib import Path

import pytest

from tests.interop.mqadmin_site import BEHIND, MESSAGES, ONLINE, QUEUES, TOPIC, Site
from tests.interop.toolchain import wait_until

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "compatibility.md"
SECTION = "## RocketMQ's admin tools on PocketMQ"

REFUSED = [
    ("getColdDataFlowCtrInfo -b {broker}", 2003),
    (f"updateColdDataFlowCtrGroupConfig -b {{broker}} -g {ONLINE} -v 5", 2001),
    (f"removeColdDataFlowCtrGroupConfig -b {{broker}} -g {ONLINE}", 2002),
    ("setCommitLogReadAheadMode -b {broker} -m 0", 2004),
    ("resetMasterFlushOffset -b {broker} -o 0", 908),
    ("exportPopRecord -b {broker}", 200056),
    ("addBroker -c {broker} -b /nowhere", 902),
    ("removeBroker -c {broker} -b DefaultCluster:broker-a:0", 903),
    ("updateStaticTopic -b broker-a -t Static -qn 2", 513),
    (f"checkRocksdbCqWriteProgress -n {{namesrv}} -c DefaultCluster -t {TOPIC}", 354),
    ("rocksDBConfigToJson -n {namesrv} -c DefaultCluster -t topics", 355),
    ("getSyncStateSet -a {namesrv} -b broker-a", 1005),
    ("electMaster -a {namesrv} -b 0 -bn broker-a -c DefaultCluster", 1005),
    ("getControllerMetaData -a {namesrv}", 1005),
    ("cleanBrokerMetadata -a {namesrv} -bn broker-a -c DefaultCluster", 1005),
    ("getControllerConfig -a {namesrv}", 1010),
    ("updateControllerConfig -a {namesrv} -k a -v b", 1009),
]
"""Features that PocketMQ lacks, and the request code that it refuses."""


def test_the_consume_mode_is_set(mq: Site) -> None:
    """5.3: POP and PULL, for a topic and group that exist."""
    if not mq.admin.is_5:
        return
    command = ("setConsumeMode", "-b", mq.server.broker, "-t", TOPIC, "-g", ONLINE, "-m")
    assert "set consume mode to" in mq.admin.ok(*command, "POP").out
    assert "set consume mode to" in mq.admin.ok(*command, "PULL").out
    refused = mq.admin.run("setConsumeMode", "-b", mq.server.broker, "-t", "nobody", "-g", ONLINE, "-m", "POP")
    assert "CODE: 17" in refused.err + refused.out


def test_settings_change_at_a_running_broker(mq: Site) -> None:
    """And what is read at the start only is refused with the reason."""
    change = ("updateBrokerConfig", "-b", mq.server.broker, "-k")
    assert "update broker config success" in mq.admin.ok(*change, "fileReservedTime", "-v", "71").out
    shown = mq.admin.ok("getBrokerConfig", "-b", mq.server.broker).out
    assert re.search(r"fileReservedTime *= *71", shown)
    refused = mq.admin.run(*change, "listenPort", "-v", "1")
    assert "broker.listen_port is read at the start of a broker only" in refused.err + refused.out
    assert "success" in mq.admin.ok(*change, "fileReservedTime", "-v", "72").out


def test_every_command_is_in_the_table(mq: Site) -> None:
    """docs/compatibility.md has a row for each command that this version of the tools lists."""
    listed = set(re.findall(r"^ {3}(\w+) +\S", mq.admin.ok("").out, re.MULTILINE))
    assert len(listed) == (89 if mq.admin.is_5 else 56)
    section = DOCUMENT.read_text().split(SECTION, 1)[1].split("\n## ", 1)[0]
    assert listed <= set(re.findall(r"`(\w+)", section)), listed - set(re.findall(r"`(\w+)", section))


@pytest.mark.parametrize(("command", "code"), REFUSED, ids=[command.split()[0] for command, _ in REFUSED])
def test_refused_commands(mq: Site, command: str, code: int) -> None:
    """RocketMQ's own refusal, code 3 with its text; no command hangs or pretends to work."""
    words = command.format(broker=mq.server.broker, namesrv=mq.server.namesrv).split()
    if not mq.admin.is_5:
        assert mq.admin.run(words[0]).out.strip() == f"The sub command {words[0]} not exist."
        return
    output = mq.admin.run(*words)
    assert f"CODE: 3  DESC:  request type {code} not supported" in output.err + output.out, output


def test_users_where_nobody_has_to_authenticate(mq: Site) -> None:
    """An open broker has no users, and makes none; test_mqadmin_access.py has a protected one."""
    at = ("-b", mq.server.broker)
    of_4 = (
        ("clusterAclConfigVersion", *at),
        ("updateAclConfig", *at, "-a", "app-user", "-s", "app-secret-1"),
        ("deleteAclConfig", *at, "-a", "app-user"),
    )
    of_5 = (
        ("createUser", *at, "-u", "app", "-p", "app-secret-1"),
        ("updateUser", *at, "-u", "app", "-p", "app-secret-1"),
        ("deleteUser", *at, "-u", "app"),
        ("createAcl", *at, "-s", "User:app", "-r", "Topic:a", "-a", "Pub", "-d", "Allow"),
        ("updateAcl", *at, "-s", "User:app", "-r", "Topic:a", "-a", "Pub", "-d", "Allow"),
        ("deleteAcl", *at, "-s", "User:app"),
    )
    for command in of_5 if mq.admin.is_5 else of_4:
        refused = mq.admin.run(*command)
        assert "this server knows no users" in refused.err + refused.out, refused
    for name in ("listUser", "listAcl") if mq.admin.is_5 else ():
        assert mq.admin.ok(name, *at).lines == []


def test_commands_on_files_alone(mq: Site) -> None:
    """Commands of 5.3 that use no server report on their file; remappings need a static topic."""
    if not mq.admin.is_5:
        return
    assert "not exist" in mq.admin.run("dumpCompactionLog", "-f", "/nowhere").err
    assert "RocksDB path is invalid" in mq.admin.run("exportMetadataInRocksDB", "-p", "/nowhere", "-t", "topics").out
    assert "Mapping info" in mq.admin.run("remappingStaticTopic", "-b", "broker-a", "-t", TOPIC).err


def test_broker_status(mq: Site) -> None:
    """RocketMQ's runtime table, by address and by cluster."""
    status = mq.admin.ok("brokerStatus", "-b", mq.server.broker).settings
    ours = mq.ask(lambda admin: admin.broker_runtime(mq.server.broker))
    for name in (
        "brokerVersionDesc",
        "bootTimestamp",
        "msgPutTotalTodayNow",
        "commitLogMaxOffset",
        "putMessageSizeTotal",
    ):
        assert status[name] == ours[name], name
    assert int(status["msgPutTotalTodayNow"]) >= MESSAGES
    assert status["sendThreadPoolQueueCapacity"] == "10000"
    by_cluster = mq.admin.ok("brokerStatus", "-c", "DefaultCluster").lines
    assert {line.split()[0] for line in by_cluster} == {mq.server.broker}
    assert any(line.split()[1:] == ["brokerVersionDesc", ":", "V4_9_8"] for line in by_cluster)


def test_settings_of_the_broker(mq: Site) -> None:
    """By address and by cluster."""
    for words in (["-b", mq.server.broker], ["-c", "DefaultCluster"]):
        settings = mq.admin.ok("getBrokerConfig", *words).settings
        assert (settings["brokerName"], settings["brokerRole"]) == ("broker-a", "ASYNC_MASTER")
        assert settings["mappedFileSizeCommitLog"] == "67108864"
        assert settings["traceTopicEnable"] == "true"
        assert "brokerIP1" in settings


def test_cleaning(mq: Site) -> None:
    """By address and by cluster; files in use stay."""
    for name in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        for words in (["-b", mq.server.broker], ["-c", "DefaultCluster"]):
            assert mq.admin.ok(name, *words).lines == ["success"]
    assert mq.topic(TOPIC).count == MESSAGES


def test_exports(mq: Site) -> None:
    """Metadata, settings and metrics as files."""
    folder = mq.admin.directory / "export"
    for words, name in (
        (["exportMetadata", "-c", "DefaultCluster"], "metadata.json"),
        (["exportMetadata", "-b", mq.server.broker, "-t"], "topic.json"),
        (["exportMetadata", "-b", mq.server.broker, "-g"], "subscriptionGroup.json"),
        (["exportConfigs", "-c", "DefaultCluster"], "configs.json"),
        (["exportMetrics", "-c", "DefaultCluster"], "metrics.json"),
    ):
        output = mq.admin.ok(*words, "-f", str(folder))
        assert f"export {folder}/{name} success" in output.out, output
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["topicConfigTable"][TOPIC]["writeQueueNums"] == QUEUES
    assert {ONLINE, BEHIND} <= set(metadata["subscriptionGroupTable"])
    assert json.loads((folder / "topic.json").read_text())["topicConfigTable"][TOPIC]["perm"] == 6
    configs = json.loads((folder / "configs.json").read_text())
    assert "broker-a" in configs["brokerConfigs"]
    metrics = json.loads((folder / "metrics.json").read_text())
    report = metrics["evaluateReport"]["broker-a"]
    assert "PYTHON%V4_9_8" in report["runtimeVersion"]["clientInfo"]
    assert report["runtimeQuota"]["topicSize"] == len(metadata["topicConfigTable"])


def test_send_times_of_the_cluster(mq: Site) -> None:
    """It sends without end: its output before the interrupt shows that the sends succeeded."""
    output = mq.admin.run_for(1.5, "clusterRT", "-a", "3", "-s", "10", "-c", "DefaultCluster", "-i", "1")
    rows = [line.split() for line in output.lines[1:]]
    assert rows
    assert {(row[0], row[1], row[3], row[4]) for row in rows} == {("DefaultCluster", "broker-a", "3", "0")}


def test_replication(mq: Site) -> None:
    """5.3: which slave follows, and the epochs of the log, which every PocketMQ log has."""
    if not mq.admin.is_5:
        return
    for words in (["-b", mq.server.broker], ["-c", "DefaultCluster"]):
        output = mq.admin.ok("haStatus", *words)
        assert f"#MasterAddr\t{mq.server.broker}" in output.lines
        assert "#SlaveNum\t0" in output.lines
    ours = mq.ask(lambda admin: admin.broker_runtime(mq.server.broker))
    output = mq.admin.ok("getBrokerEpoch", "-b", "broker-a")
    [entry] = re.findall(r"EpochEntry\{epoch=(\d+), startOffset=(\d+), endOffset=(\d+)\}", output.out)
    assert entry[:2] == (ours["haEpoch"], "0")
    assert int(entry[2]) > 0


def test_monitoring_starts(mq: Site) -> None:
    """It runs without end; until it is interrupted it reports no problem."""
    output = mq.admin.run_for(2, "startMonitoring")
    assert "Exception" not in output.err.replace("InterruptedException", ""), output
    wait_until(lambda: mq.topic(TOPIC).count == MESSAGES, 5, "the broker serves")
