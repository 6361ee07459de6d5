"""The program that ``test_cluster`` submits: a topic in batch and as a stream, and back into another topic.

Arguments: name server, topic to read, topic to write, a directory. Prints one line of JSON.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import pocketmq
from pocketmq.pipeline import register


def main(namesrv: str, topic: str, to_topic: str, directory: str) -> None:
    """Run the three queries, and print the results."""
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    options = {"namesrv": namesrv, "brokerWaitMs": "20000"}
    table = spark.read.format("pocketmq").options(subscribe=topic, minPartitions="4", **options).load()
    total = table.selectExpr("count(*)", "sum(int(cast(body as string)))").collect()[0]
    source = spark.readStream.format("pocketmq").options(subscribe=topic, startingOffsets="earliest", **options).load()
    query = (
        source.writeStream.format("parquet")
        .options(path=f"{directory}/out", checkpointLocation=f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    streamed = spark.read.parquet(f"{directory}/out")
    streamed.select("body", "tags").write.format("pocketmq").options(topic=to_topic, namesrv=namesrv).mode(
        "append"
    ).save()
    back = spark.read.format("pocketmq").options(subscribe=to_topic, **options).load()
    result = {
        "master": spark.sparkContext.master,
        "code": str(Path(pocketmq.__file__)),
        "executors": spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1,
        "batch": list(total),
        "stream": streamed.count(),
        "back": list(back.selectExpr("count(*)", "sum(int(cast(body as string)))").collect()[0]),
    }
    print(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
