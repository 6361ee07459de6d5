"""Spark writing to a topic: rows a second, as transactions and without, and where the time goes.

Method: ``ROWS`` (thousands, default 1000) rows of a cached table are written by ``local[2]`` to a broker process of its
own; a third of that for 1 KiB. Medians of ``ROUNDS`` after one warm-up. The rate is of the whole job: tasks, commit,
delivery. ``python -m bench.own.spark.sink tasks`` measures a task alone, without Spark: build, stage, commit.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from bench.base.broker_process import BrokerProcess
from bench.base.harness import own_broker
from bench.own.spark.read import QUEUES, ROUNDS, ROWS, columns, session
from pocketmq.client.admin.admin import Admin
from pocketmq.client.staged.staged_transaction import StagedTransactions
from pocketmq.pipeline.sink.sink_plan import SinkPlan
from pocketmq.pipeline.sink.sink_task import write_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_ROWS = 10_000
"""Spark's own (``spark.sql.execution.arrow.maxRecordsPerBatch``)."""


async def create(namesrv: str, topic: str) -> None:
    """Create a topic with the usual queues."""
    async with Admin(namesrv) as admin:
        await admin.create_topic(topic, queues=QUEUES)


def sink(spark: "SparkSession", broker: BrokerProcess, rows: int = ROWS) -> Iterator[dict[str, object]]:
    """Yield one result a size and kind of write, with a session that has the formats registered."""
    for size, count in ((100, rows), (1024, rows // 3)):
        columns = {
            "body": [f"rpad(cast(id as string), {size}, 'x') as body"],
            "body, tags, keys": [
                f"rpad(cast(id as string), {size}, 'x') as body",
                "if(id % 2 = 0, 'even', 'odd') as tags",
                "concat('k', id) as keys",
            ],
        }
        for name, expressions in columns.items():
            frame = spark.range(0, count, 1, 2).selectExpr(*expressions).cache()
            frame.count()
            for transactional in ("true", "false"):
                topic = f"sink{size}"
                asyncio.run(create(broker.namesrv, topic))
                took: list[float] = []
                for _ in range(ROUNDS + 1):
                    begin = time.perf_counter()
                    frame.write.format("pocketmq").mode("append").options(
                        namesrv=broker.namesrv, topic=topic, transactional=transactional
                    ).save()
                    took.append(time.perf_counter() - begin)
                yield {
                    "bench": f"sink {size} B, {name}",
                    "transactional": transactional,
                    "rows": count,
                    "k_rows_s": round(count / statistics.median(took[1:]) / 1000),
                    "s": round(statistics.median(took[1:]), 2),
                }
            frame.unpersist()


def tasks(rows: int = ROWS) -> Iterator[dict[str, object]]:
    """Yield what one task does without Spark: thousand rows a second, and µs of this process a row."""
    for size in (100, 1024):
        count = rows if size == 100 else rows // 3
        keyed = columns(range(BATCH_ROWS), size)
        plain = keyed.select(["body"])
        for name, batch in (("body", plain), ("body, tags, keys", keyed)):
            for transactional in (True, False):
                with own_broker() as broker:
                    asyncio.run(create(broker.namesrv, "T"))
                    measured = _task(broker.namesrv, batch, count // BATCH_ROWS, transactional=transactional)
                yield {"bench": f"sink task {size} B, {name}", "transactional": transactional, **measured}


def _task(namesrv: str, batch: pa.RecordBatch, batches: int, *, transactional: bool) -> dict[str, object]:
    plan = SinkPlan(namesrv, "T", "bench", transactional, 60_000, 1 << 20, 1, "bench", 0)
    rows = batches * len(batch)
    begin, cpu = time.perf_counter(), time.process_time()
    part = write_rows(plan, "bench", 0, "one", 0, (batch for _ in range(batches)))
    written_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    if transactional:

        async def commit() -> None:
            async with StagedTransactions("bench", namesrv) as transactions:
                await transactions.commit("bench", 0, [part])

        asyncio.run(commit())
    whole_s = time.perf_counter() - begin
    return {
        "rows": rows,
        "k_rows_s": round(rows / whole_s / 1000),
        "written_k_rows_s": round(rows / written_s / 1000),
        "client_us_a_row": round(cpu_s / rows * 1e6, 2),
    }


def run() -> Iterator[dict[str, object]]:
    """Yield all results."""
    yield from tasks()
    with own_broker() as broker:
        spark = session()
        yield from sink(spark, broker)
        spark.stop()


if __name__ == "__main__":
    for result in tasks() if sys.argv[1:] == ["tasks"] else run():
        print(result, flush=True)
