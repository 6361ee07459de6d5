"""Spark's own Kafka source beside ours: the same rows, the same sum, the same session settings.

Fetches a Kafka server and Spark's connector from Maven Central with ``mvn``, runs the server in KRaft mode on loopback
(one node, 512 MiB), writes ``ROWS`` thousand messages of 100 B and a third of that of 1 KiB with Spark's Kafka sink,
and sums up the values' lengths. Without Java or Maven it says so and yields nothing else.
"""

import base64
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark

from bench.own.spark import QUEUES, ROWS, rate
from pocketmq.pipeline.java import JavaMissing, use_java
from tests.servers import free_port, running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA: Final = "4.1.1"
FETCH_S: Final = 900
SIX: Final = "topic, partition, offset, timestamp, key, value"
POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>bench</groupId><artifactId>{name}</artifactId><version>1</version>
<dependencies><dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
{rest}</dependency></dependencies></project>
"""
PROVIDED: Final = (
    "<exclusions><exclusion><groupId>org.scala-lang</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


def class_path(directory: Path, group: str, artifact: str, version: str, rest: str = "") -> str:
    """Return the jars of an artifact with what it needs. Raises ``CalledProcessError`` if Maven cannot get them."""
    home = directory / artifact
    home.mkdir()
    (home / "pom.xml").write_text(POM.format(name=artifact, group=group, artifact=artifact, version=version, rest=rest))
    command = ["mvn", "-q", "-B", "dependency:build-classpath", f"-Dmdep.outputFile={home / 'path'}"]
    subprocess.run(command, cwd=home, check=True, capture_output=True, text=True, timeout=FETCH_S)
    return (home / "path").read_text().strip()


def server(directory: Path, jars: str) -> tuple[list[str], int]:
    """Write the settings of a server and format its storage; return the command that runs it, and its port."""
    port, controller = free_port(), free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(directory / "kafka-data"),
        "num.partitions": str(QUEUES),
        "offsets.topic.replication.factor": "1",
    }
    file = directory / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = ["java", "-Xmx512m", "-cp", jars]
    identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    form = [*java, "kafka.tools.StorageTool", "format", "-t", f"A{identity[1:]}", "-c", str(file)]
    subprocess.run(form, check=True, capture_output=True, text=True, timeout=120)
    return [*java, "kafka.Kafka", str(file)], port


def session(jars: str) -> "SparkSession":
    """Return a local session as ``bench.own.spark`` has it, with the connector."""
    from pyspark.sql import SparkSession

    own = {path.name for path in Path(pyspark.__file__).parent.joinpath("jars").iterdir()}
    extra = ",".join(jar for jar in jars.split(":") if Path(jar).name not in own)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", extra)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run() -> Iterator[dict[str, object]]:
    """Yield one result a size."""
    try:
        use_java()
    except JavaMissing as missing:
        yield {"bench": "spark_kafka", "skipped": str(missing)}
        return
    if shutil.which("mvn") is None:
        yield {"bench": "spark_kafka", "skipped": "no mvn: apt-get install maven"}
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        try:
            kafka = class_path(directory, "org.apache.kafka", "kafka_2.13", os.environ.get("KAFKA", KAFKA))
            connector = class_path(
                directory, "org.apache.spark", "spark-sql-kafka-0-10_2.13", pyspark.__version__, PROVIDED
            )
            command, port = server(directory, kafka)
        except subprocess.CalledProcessError as error:
            yield {"bench": "spark_kafka", "skipped": f"{error}: {(error.stdout or '')[-300:]}"}
            return
        log = directory / "output"
        with running(command, directory, lambda: "Kafka Server started" in log.read_text(errors="replace")):
            yield from measure(session(connector), port)


def measure(spark: "SparkSession", port: int) -> Iterator[dict[str, object]]:
    """Write and read both sizes."""
    for size, rows in ((100, ROWS), (1024, ROWS // 3)):
        options = {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "topic": f"bytes{size}"}
        value = f"rpad(cast(id as string), {size}, 'x') as value"
        begin = time.perf_counter()
        spark.range(rows).selectExpr("cast(id as string) as key", value).write.format("kafka").options(**options).save()
        wrote_s = time.perf_counter() - begin

        def table(size: int = size) -> "DataFrame":
            reader = spark.read.format("kafka").option("kafka.bootstrap.servers", f"127.0.0.1:{port}")
            frame = reader.option("subscribe", f"bytes{size}").load()
            return frame.selectExpr(*SIX.split(", ")).withColumnRenamed("value", "body")

        yield {
            "bench": f"Spark's Kafka source {size} B",
            "rows": rows,
            "k_rows_s": round(rate(table, rows)),
            "sink_k_rows_s": round(rows / wrote_s / 1000),
        }
    spark.stop()
