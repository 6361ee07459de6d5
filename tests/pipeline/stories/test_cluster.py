"""The connector on a real standalone cluster: a master and two workers in separate processes."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import Message, Producer
from pocketmq.client.admin.admin import Admin
from pocketmq.pipeline.packing import package_zip
from pocketmq.testing import PocketBroker
from tests.pipeline.spark_cluster import HOME, WORKERS, SparkCluster, python_without_pocketmq

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
JOB = str(Path(__file__).with_name("cluster_job.py"))
COUNT = 2000
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both executors before the first task
}


@pytest.fixture(scope="module")
def cluster(java: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Start one cluster for the module."""
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


async def send(namesrv: str, topic: str) -> None:
    """Send numbered messages."""
    async with Admin(namesrv) as admin:
        await admin.create_topic(topic, queues=4)
        await admin.create_topic(f"{topic}-back", queues=4)
    async with Producer(group="test", namesrv=namesrv) as producer:
        for at in range(0, COUNT, 500):
            await producer.send_batch([Message(topic, b"%d" % n, tags="t") for n in range(at, at + 500)])


def submit(cluster: SparkCluster, python: str, broker: PocketBroker, directory: Path, *options: str) -> Any:
    """Run the job with ``spark-submit``; return its output."""
    topic = directory.name.replace("_", "-")
    asyncio.run(send(broker.namesrv, topic))
    command = [str(HOME / "bin" / "spark-submit"), "--master", cluster.master, *options]
    command += [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
    command += [JOB, broker.namesrv, topic, f"{topic}-back", str(directory)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment.update(SPARK_HOME=str(HOME), PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=python)
    run = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment, cwd=directory)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-6000:]
    return json.loads(run.stdout.splitlines()[-1])


def check(result: Any, cluster: SparkCluster) -> None:
    """All rows arrived in each of the three ways, on the cluster."""
    wanted = [COUNT, COUNT * (COUNT - 1) // 2]
    assert result["master"] == cluster.master
    assert result["executors"] == WORKERS
    assert result["batch"] == result["back"] == wanted
    assert result["stream"] == COUNT


@pytest.mark.soak
def test_executors_get_the_package_as_a_file(cluster: SparkCluster, broker: PocketBroker, tmp_path: Path) -> None:
    """``--py-files`` is enough where the Python of driver and executors has the libraries, and this package not."""
    python = python_without_pocketmq(tmp_path / "python")
    archive = package_zip(tmp_path / "pocketmq.zip")
    result = submit(cluster, python, broker, tmp_path, "--py-files", archive)
    check(result, cluster)
    assert ".zip" in result["code"]


@pytest.mark.scenario
def test_executors_have_the_package_installed(cluster: SparkCluster, broker: PocketBroker, tmp_path: Path) -> None:
    """No file is shipped: the Python of PYSPARK_PYTHON has the package."""
    result = submit(cluster, sys.executable, broker, tmp_path)
    check(result, cluster)
    assert ".zip" not in result["code"]
