"""Consumers in this process, until a signal or until all have stopped.

Lives here: ``run_consumers``, the log of a worker.
"""

import asyncio
import logging
import os
from collections.abc import Sequence

from pocketmq.cli.output import print_note
from pocketmq.cli.run import run_async
from pocketmq.client import blocking
from pocketmq.client.push.push_consumer import PushConsumer

LOG_LEVELS = ("debug", "info", "warning", "error")


def run_consumers(consumers: Sequence[PushConsumer] | blocking.PushConsumer, stop_timeout_ms: int) -> None:
    """Run all until they have stopped; SIGTERM and SIGINT stop them cleanly. Raises the first error of a start."""
    if isinstance(consumers, blocking.PushConsumer):
        _announce(consumers.group, consumers.topics)
        consumers.run(stop_timeout_ms=stop_timeout_ms)
        return
    for consumer in consumers:
        _announce(consumer.group, [each.topic for each in consumer.subscriptions])
    run_async(_run_all(consumers, stop_timeout_ms))


def _announce(group: str, topics: Sequence[str]) -> None:
    print_note(f"worker {os.getpid()}: {group} consumes {', '.join(topics) or 'nothing'}")


async def _run_all(consumers: Sequence[PushConsumer], stop_timeout_ms: int) -> None:
    runs = [asyncio.ensure_future(consumer.run(stop_timeout_ms=stop_timeout_ms)) for consumer in consumers]
    try:
        await asyncio.gather(*runs)
    finally:
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)


def log_at(level: str) -> None:
    """Write log lines of this level and above to standard error, unless the application has configured logging."""
    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    logging.getLogger().setLevel(level.upper())
