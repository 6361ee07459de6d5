"""PocketMQ: a message broker in pure Python with RocketMQ's semantics, its SDK and its Spark pipeline."""

__version__ = "0.1.0"
