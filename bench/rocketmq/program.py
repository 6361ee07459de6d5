"""What RocketMQ's benchmark programs have in common on PocketMQ's SDK.

Lives here: the options that producer and consumer share, the line at each interval, the end of a program.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from bench.rocketmq.lines import FORMATS, SNAPSHOT_S, ConsumeWindow, SendWindow
from pocketmq.client import ClientInstance
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.loop import new_event_loop


def boolean(text: str) -> bool:
    """Read a flag as Java's parseBoolean does."""
    return text.strip().lower() == "true"


def java_text(value: object) -> str:
    """Write a value as Java does."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def parser(name: str, text: str | None, threads: int) -> argparse.ArgumentParser:
    """Return the options of both programs; ``threads`` is the default of ``-w``."""
    made = argparse.ArgumentParser(name, description=text, allow_abbrev=False)
    add = made.add_argument
    add("-n", "--namesrvAddr", default="127.0.0.1:9876", help="Name server address list, separated by ;")
    add("-t", "--topic", default="BenchmarkTest", help="Topic name, default BenchmarkTest")
    add("-w", "--threadCount", type=int, default=threads, help=f"Thread count, default {threads}")
    add("-m", "--msgTraceEnable", type=boolean, default=False, help="Message trace enable, default false")
    add("-a", "--aclEnable", type=boolean, default=False, help="Acl enable: the SDK has none")
    add("-ri", "--reportInterval", type=int, default=10_000, help="ms between two lines, default 10000")
    add("--format", choices=FORMATS, default="5.3", help="which RocketMQ's lines, default 5.3")
    return made


def parsed(
    made: argparse.ArgumentParser, arguments: Sequence[str] | None, least: Mapping[str, int]
) -> argparse.Namespace:
    """Return the options; end the program with a line where one is below its ``least`` value or cannot be done."""
    options = made.parse_args(arguments)
    if options.aclEnable:
        made.error("-a true: PocketMQ's SDK signs no requests; leave ACL off at the broker")
    for name, limit in {"threadCount": 1, "reportInterval": 1000, **least}.items():
        if getattr(options, name) < limit:
            made.error(f"{name} must be at least {limit}")
    return options


def instance(options: argparse.Namespace) -> ClientInstance:
    """Return a client instance with a name of its own."""
    return ClientInstance(options.namesrvAddr, instance_name=str(int(time.time() * 1000)))


async def report(window: SendWindow | ConsumeWindow, interval_ms: int, seconds: float = 0.0) -> None:
    """Take a snapshot each second and print a line each interval; return after ``seconds``, 0: never."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    taken, next_line_s = 1, interval_ms / 1000
    while not seconds or loop.time() - begin < seconds:
        await asyncio.sleep(max(0.0, begin + taken * SNAPSHOT_S - loop.time()))
        window.snapshot(time.time())
        if taken * SNAPSHOT_S >= next_line_s:
            next_line_s += interval_ms / 1000
            if window.full:
                print(window.line(time.time()), flush=True)
        taken += 1


def run(first_line: str, work: Coroutine[Any, Any, None]) -> int:
    """Print the first line and run the program until it is done or interrupted; return its exit code."""
    print(first_line, flush=True)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(work)
    except KeyboardInterrupt:
        return 130
    except PocketMQError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
