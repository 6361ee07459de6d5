"""RocketMQ's admin tools on ``pocketmq cluster``: several brokers, a slave among them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pocketmq.client.blocking import Producer
from pocketmq.common.message import Message
from tests.interop.mqadmin import MqAdmin, mqadmin
from tests.interop.python_side import new_name
from tests.interop.toolchain import wait_until

START_S = 60.0
SETTINGS = (
    "store.mapped_file_size_commit_log=67108864",
    "store.max_index_num=20000",
    "store.max_hash_slot_num=5000",
)
BROKERS = 3
MESSAGES = 40


def free_ports() -> tuple[int, int]:
    """Return a port for the name server and one with room for the brokers behind it, below the ephemeral ports."""
    for base in range(10_000 + os.getpid() % 20_000, 32_000, 41):
        sockets: list[socket.socket] = []
        try:
            sockets.extend(socket.create_server(("127.0.0.1", port)) for port in range(base, base + 32))
            return base, base + 2
        except OSError:
            continue
        finally:
            for each in sockets:
                each.close()
    raise RuntimeError("no free ports")


@contextmanager
def pocketmq_cluster(directory: Path) -> Iterator[str]:
    """Run ``pocketmq cluster`` until the block ends; yields its name server."""
    directory.mkdir(parents=True)
    namesrv_port, broker_port = free_ports()
    command = [sys.executable, "-m", "pocketmq.cli.main", "cluster", "--data-dir", str(directory / "data")]
    command += ["--namesrv-port", str(namesrv_port), "--broker-port", str(broker_port)]
    for setting in SETTINGS:
        command += ["--set", setting]
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(root / "src"), str(root)))}
    output = directory / "output.log"
    with output.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        give_up_s = time.monotonic() + START_S
        while "see it" not in output.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > give_up_s:
                raise RuntimeError(f"pocketmq cluster did not start:\n{output.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)
        yield f"127.0.0.1:{namesrv_port}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start the name server of a cluster."""
    with pocketmq_cluster(tmp_path_factory.mktemp("cluster") / "pocketmq") as address:
        yield address


@pytest.fixture(scope="module", params=["client-4.9", "client-5.3"])
def admin(request: pytest.FixtureRequest, namesrv: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqAdmin]:
    """Start the tools of one version."""
    with mqadmin(request.param, tmp_path_factory.mktemp("tools"), namesrv) as tools:
        yield tools


def brokers(admin: MqAdmin) -> dict[tuple[str, str], str]:
    """Return (broker name, broker id) → address of clusterList."""
    lines = [line.split() for line in admin.ok("clusterList").lines[1:]]
    return {(line[1], line[2]): line[3] for line in lines}


def test_every_broker_is_listed(admin: MqAdmin) -> None:
    """Two masters and the slave of one of them."""
    wait_until(lambda: len(brokers(admin)) == BROKERS, 30, "all brokers")
    assert sorted(brokers(admin)) == [("broker-a", "0"), ("broker-a", "1"), ("broker-b", "0")]
    table = admin.ok("clusterList", "-m").rows
    assert {row["Broker Name"] for row in table} == {"broker-a", "broker-b"}


def test_a_topic_of_the_whole_cluster(admin: MqAdmin, namesrv: str) -> None:
    """It is created on every master, filled by our SDK; the offsets of all queues add up; it is deleted everywhere."""
    wait_until(lambda: len(brokers(admin)) == BROKERS, 30, "all brokers")
    topic = new_name("Wide")
    output = admin.ok("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "2", "-w", "2")
    masters = {address for (_, broker_id), address in brokers(admin).items() if broker_id == "0"}
    assert {line.split()[3] for line in output.lines if line.startswith("create topic to")} == masters
    with Producer(new_name("PID"), namesrv) as producer:
        for index in range(MESSAGES):
            producer.send(Message(topic, b"%d" % index))
    rows = admin.ok("topicStatus", "-t", topic).rows
    assert {(row["Broker Name"], row["QID"]) for row in rows} == {
        (name, queue) for name in ("broker-a", "broker-b") for queue in "01"
    }
    assert sum(int(row["Max Offset"]) - int(row["Min Offset"]) for row in rows) == MESSAGES
    route = admin.ok("topicRoute", "-t", topic, "-l").rows
    assert {row["BrokerName"] for row in route} >= {"broker-a", "broker-b"}
    admin.ok("deleteTopic", "-c", "DefaultCluster", "-t", topic)
    assert "CODE: 17" in admin.run("topicRoute", "-t", topic).err


def test_the_slave_as_the_tools_of_5_3_see_it(admin: MqAdmin) -> None:
    """Its master reports it in sync, the slave names its master; both have the same epochs."""
    if not admin.is_5:
        return
    wait_until(lambda: len(brokers(admin)) == BROKERS, 30, "all brokers")
    at = brokers(admin)
    master, slave = at["broker-a", "0"], at["broker-a", "1"]
    wait_until(lambda: "#InSyncSlaveNum\t1" in admin.ok("haStatus", "-b", master).lines, 30, "a slave in sync")
    told = admin.ok("haStatus", "-b", master)
    assert "#SlaveNum\t1" in told.lines
    assert any(line.split()[-2] == "OK" for line in told.lines if line.startswith("127.0.0.1"))
    assert any(line.startswith("#MasterAddr\t") for line in admin.ok("haStatus", "-b", slave).lines)
    epochs = admin.ok("getBrokerEpoch", "-b", "broker-a").out
    assert (f"#brokerAddr\t{master}" in epochs, f"#brokerAddr\t{slave}" in epochs) == (True, True)


def test_a_slave_refuses_changes(admin: MqAdmin) -> None:
    """The refusal has RocketMQ's words."""
    wait_until(lambda: len(brokers(admin)) == BROKERS, 30, "all brokers")
    slave = brokers(admin)["broker-a", "1"]
    output = admin.run("updateTopic", "-b", slave, "-t", new_name("AtSlave"), "-r", "1", "-w", "1")
    assert "Can't modify topic or subscription group from slave broker" in output.err + output.out
    output = admin.run("cleanUnusedTopic", "-b", slave)
    assert "from slave broker" in output.err + output.out
