"""Topics as tables for Spark.

    from pocketmq.pipeline import register
    register(spark)
    spark.read.format("pocketmq").option("namesrv", "127.0.0.1:9876").option("subscribe", "orders").load()

Needs ``pip install 'pocketmq[spark]'`` and Java 17 or later. Nothing of Spark is imported before ``register``.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Register ``format("pocketmq")`` and ``format("pocketmq-log")``; once per session."""
    from pocketmq.pipeline.registration import register_all

    register_all(spark)
