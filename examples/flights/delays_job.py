"""Delays by hour, carrier and airport, with the weather of that hour: a topic of flights, streamed through Spark.

Reads flights as JSON from a topic while they are sent, drops those that came twice (a producer that does not know
whether a send arrived sends again), adds up the delays of each hour by carrier and airport, joins the weather there,
and writes each finished hour once: into Parquet files and, with ``--to-topic``, as a message. Killed and started again
with the same directories it goes on where it was. ``delays.py`` beside this file drives it and checks the result.

    spark-submit examples/flights/delays_job.py --namesrv 127.0.0.1:9876 --topic Flights --weather weather.csv \\
        --output /tmp/delays
"""

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pocketmq.pipeline import register
from pocketmq.pipeline.java import use_java

FLIGHT = "row long, time_hour timestamp, carrier string, origin string, dep_delay long, arr_delay long"
WEATHER = ("origin", "time_hour", "temp", "wind_speed", "precip", "visib")
LATE = "30 days"
"""How far behind the latest flight another one may come. The queues of a topic are not read in step: a micro-batch may
take a week from one of them that the others still have."""
PROGRESS_S = 0.2


def flights(spark: SparkSession, namesrv: str, topic: str, **options: str) -> DataFrame:
    """Return the stream of flights, each once."""
    source = spark.readStream.format("pocketmq").schema("body binary")
    table = source.options(namesrv=namesrv, subscribe=topic, startingOffsets="earliest", **options).load()
    flight = F.from_json(F.col("body").cast("string"), FLIGHT).alias("flight")
    return (
        table.select(flight).select("flight.*").withWatermark("time_hour", LATE).dropDuplicatesWithinWatermark(["row"])
    )


def delays(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Return the delays of each hour; a row comes when its hour is over (``LATE``), and then never changes."""
    hours = flights.groupBy(F.window("time_hour", "1 hour"), "carrier", "origin").agg(
        F.count("*").alias("flights"),
        F.count("dep_delay").alias("departed"),
        F.sum("dep_delay").alias("dep_delay"),
        F.max("dep_delay").alias("dep_delay_max"),
        F.sum("arr_delay").alias("arr_delay"),
    )
    named = hours.select(
        F.col("window.start").alias("time_hour"), *[name for name in hours.columns if name != "window"]
    )
    return named.join(F.broadcast(weather), ["origin", "time_hour"], "left")


def read_weather(spark: SparkSession, path: str) -> DataFrame:
    """Return the weather table of the package."""
    table = spark.read.csv(path, header=True, nullValue="NA", inferSchema=True)
    return table.select(*WEATHER)


def start(
    table: DataFrame, directory: Path, namesrv: str, to_topic: str, every: str = "500 milliseconds"
) -> list[StreamingQuery]:
    """Start writing: one query for the files, one for the topic; each has its own checkpoint and reads by itself."""
    files = table.writeStream.queryName("files").format("parquet")
    queries = [
        files.options(path=str(directory / "table"), checkpointLocation=str(directory / "checkpoint-files"))
        .trigger(processingTime=every)
        .start()
    ]
    if to_topic:
        rows = table.select(
            F.to_json(F.struct(*table.columns)).alias("body"),
            F.col("origin").alias("tags"),
            F.col("carrier").alias("keys"),
        )
        messages = rows.writeStream.queryName("messages").format("pocketmq").options(namesrv=namesrv, topic=to_topic)
        queries.append(
            messages.option("checkpointLocation", str(directory / "checkpoint-messages"))
            .trigger(processingTime=every)
            .start()
        )
    return queries


def position(progress: dict[str, Any]) -> int:
    """Return how many flights a query has read in all its life: the sum of its offsets."""
    end = progress["sources"][0]["endOffset"] or {"topics": {}}
    end = json.loads(end) if isinstance(end, str) else end
    return sum(
        offset for brokers in end["topics"].values() for part in brokers.values() for offset in part["queues"].values()
    )


def watch(queries: Iterable[StreamingQuery], until: str) -> None:
    """Print how far each query is whenever that changes; stop them when all have finished what is before ``until``."""
    printed: dict[str, tuple[int, str]] = {}
    running = list(queries)
    while not all(printed.get(query.name, (0, ""))[1] > until for query in running):
        time.sleep(PROGRESS_S)
        for query in running:
            error = query.exception()
            if error is not None:
                raise error
            progress = query.lastProgress
            if progress is None:
                continue
            now = position(progress), progress.get("eventTime", {}).get("watermark", "")
            if printed.get(query.name) != now:
                printed[query.name] = now
                print(f"{query.name} read={now[0]} watermark={now[1]}", flush=True)
    for query in running:
        query.stop()


def main() -> None:
    """Run until killed, or until the hours before ``--until`` are written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--namesrv", required=True, help="name servers, host:port")
    parser.add_argument("--topic", required=True, help="topic of the flights")
    parser.add_argument("--weather", required=True, help="the package's weather.csv")
    parser.add_argument("--output", required=True, type=Path, help="directory for the table and the checkpoints")
    parser.add_argument("--to-topic", default="", help="also write each row as a message")
    parser.add_argument("--master", default="local[2]", help="Spark's master")
    parser.add_argument("--rows", default="20000", help="largest micro-batch")
    parser.add_argument("--until", default="9999", help="stop behind this time (ISO, UTC)")
    arguments = parser.parse_args()
    use_java()
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder.master(arguments.master).appName("delays")
    spark = builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    stream = flights(spark, arguments.namesrv, arguments.topic, maxOffsetsPerTrigger=arguments.rows)
    table = delays(stream, read_weather(spark, arguments.weather))
    watch(start(table, arguments.output, arguments.namesrv, arguments.to_topic), arguments.until)
    spark.stop()


if __name__ == "__main__":
    main()
