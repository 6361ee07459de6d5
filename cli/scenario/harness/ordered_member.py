"""One member of an ordered group as a process, which the scenario ``ordered-lock-stuck`` starts and kills.

Lives here: the program (``python -m pocketmq.cli.scenario.harness.ordered_member``), its JSON lines on standard output.

Lines: ``{"event": "ready", "client_id": …}``; ``{"event": "handled", "number": …, "at_ns": …}`` for each message (the
monotonic clock, which all processes of a machine share); and the consumer's own events about locks, unchanged.
"""

import argparse
import asyncio
import json
import signal
import time
from typing import Any

from pocketmq.client import ClientInstance, ConsumeFromWhere, PushConsumer, ReceivedMessage

LOCK_EVENTS = frozenset({"queue_waits_for_lock", "queue_lock_got", "queue_lock_lost", "ordered_queue_restarts"})


class LinesLog:
    """Writes the events about locks as lines; the scenario needs no others."""

    def info(self, event: str, **fields: Any) -> None:
        """Write an event about locks."""
        if event in LOCK_EVENTS:
            say(event, at_ns=time.monotonic_ns(), **fields)

    warning = info
    error = info


def say(event: str, **fields: Any) -> None:
    """Write one line."""
    print(json.dumps({"event": event, **fields}, default=str), flush=True)


async def run(arguments: argparse.Namespace) -> None:
    """Consume in order until SIGTERM, then stop gracefully."""
    instance = ClientInstance(arguments.namesrv, log=LinesLog())
    consumer = PushConsumer(
        arguments.group,
        instance=instance,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        persist_interval_ms=200,
        lock_interval_ms=arguments.lock_interval_ms,
        lock_max_live_ms=arguments.lock_max_live_ms,
    )

    @consumer.subscribe(arguments.topic, ordered=True)
    async def handle(message: ReceivedMessage) -> None:
        say("handled", number=int(message.body), at_ns=time.monotonic_ns(), token=message.fencing_token)

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with consumer:
        say("ready", client_id=instance.client_id)
        await stop.wait()
    say("stopped", at_ns=time.monotonic_ns())


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser()
    for name in ("namesrv", "group", "topic"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("lock-interval-ms", "lock-max-live-ms"):
        parser.add_argument(f"--{name}", required=True, type=int)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
