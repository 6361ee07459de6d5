"""Spark's own Kafka source beside ours: the same rows, the same sum, the same session settings.

The comparison's Kafka server (one node, KRaft mode, on loopback) and Spark's connector from Maven Central. Writes
``ROWS`` thousand messages of 100 B and a third of that of 1 KiB with Spark's Kafka sink, and sums up the values'
lengths. Without Java or Maven it says so and yields nothing else.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from bench.base.harness import workspace
from bench.own.spark.read import QUEUES, ROWS, rate, session
from bench.peers.base import Settings, Unavailable
from bench.peers.kafka import KafkaServer
from bench.peers.maven import resolved
from pocketmq.pipeline.java import JavaMissing, use_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIX: Final = "topic, partition, offset, timestamp, key, value"
POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>bench</groupId><artifactId>connector</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId>
<version>{version}</version>
<exclusions><exclusion><groupId>org.scala-lang</groupId><artifactId>*</artifactId></exclusion></exclusions>
</dependency></dependencies></project>
"""


VERSIONS: Final = (pyspark.__version__, "4.2.0")
"""Of the connector: Spark's own, else one that Maven Central has and that works with it."""


def connector() -> list[str]:
    """Return the jars that Spark does not have itself. Raises ``Unavailable``."""
    try:
        jars = resolved("spark-kafka", POM.format(version=VERSIONS[0])).split(":")
    except Unavailable:
        jars = resolved("spark-kafka", POM.format(version=VERSIONS[1])).split(":")
    own = {path.name for path in Path(pyspark.__file__).parent.joinpath("jars").iterdir()}
    return [jar for jar in jars if Path(jar).name not in own]


def create(port: int, topic: str) -> None:
    """Create a topic with as many partitions as ours have queues."""

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}")
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, QUEUES, 1)], timeout_ms=60_000)
        finally:
            await admin.close()

    asyncio.run(run())


def run() -> Iterator[dict[str, object]]:
    """Yield one result a size."""
    with workspace() as directory:
        server = KafkaServer(directory, Settings())
        try:
            use_java()
            jars = connector()
            KafkaServer.obtain()
            server.start()
        except (JavaMissing, Unavailable) as error:
            yield {"bench": "spark_kafka", "skipped": str(error)}
            return
        try:
            yield from measure(session(*jars), int(server.target["port"]))
        finally:
            server.stop()


def measure(spark: "SparkSession", port: int) -> Iterator[dict[str, object]]:
    """Write and read both sizes."""
    for size, rows in ((100, ROWS), (1024, ROWS // 3)):
        options = {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "topic": f"bytes{size}"}
        create(port, f"bytes{size}")
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
