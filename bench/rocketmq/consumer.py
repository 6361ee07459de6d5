"""RocketMQ's benchmark consumer on PocketMQ's SDK: its options, its lines.

    python -m bench.rocketmq.consumer -n 127.0.0.1:9876 -t BenchmarkTest -g benchmark_consumer

Works against PocketMQ and RocketMQ. A thread of ``-w`` is a call of the handler under way. B2C is the time from the
birth of a message at its producer to the handler, S2C that from its store at the broker. ``--format 4.9`` prints the
lines of that version; ``--seconds`` ends the program by itself.

Lives here: options, the handler.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.rocketmq.lines import FORMATS, SNAPSHOT_S, ConsumeCounts, ConsumeWindow
from bench.rocketmq.producer import boolean
from pocketmq.client import ClientInstance, ConsumeResult, PushConsumer, ReceivedMessage
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.loop import new_event_loop


def parser() -> argparse.ArgumentParser:
    """Return RocketMQ's options, and ours with two dashes."""
    made = argparse.ArgumentParser("benchmarkConsumer", description=__doc__, allow_abbrev=False)
    add = made.add_argument
    add("-n", "--namesrvAddr", default="127.0.0.1:9876", help="Name server address list, separated by ;")
    add("-t", "--topic", default="BenchmarkTest", help="Topic name, default BenchmarkTest")
    add("-w", "--threadCount", type=int, default=20, help="Thread count, default 20")
    add("-g", "--group", default="benchmark_consumer", help="Consumer group name, default benchmark_consumer")
    add("-p", "--groupSuffix", type=boolean, default=False, help="Add a suffix to the group, default false")
    add("-f", "--filterType", choices=("TAG", "SQL92"), help="TAG, SQL92")
    add("-e", "--expression", help="filter expression content file path, e.g. ./test/expr")
    add("-r", "--failRate", type=float, default=0.0, help="consumer fail rate, default 0")
    add("-m", "--msgTraceEnable", type=boolean, default=False, help="Message trace enable, default false")
    add("-a", "--aclEnable", type=boolean, default=False, help="Acl enable: the SDK has none")
    add("-ri", "--reportInterval", type=int, default=10_000, help="ms between two lines, default 10000")
    add("--format", choices=FORMATS, default="5.3", help="which RocketMQ's lines, default 5.3")
    add("--seconds", type=float, default=0.0, help="end after so long, default 0: never")
    return made


def checked(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; ends the program with a line where one cannot be done."""
    made = parser()
    options = made.parse_args(arguments)
    if options.aclEnable:
        made.error("-a true: PocketMQ's SDK signs no requests; leave ACL off at the broker")
    if options.threadCount < 1 or options.reportInterval < 1000 or not 0 <= options.failRate <= 1:
        made.error("threadCount is at least 1, reportInterval at least 1000, failRate from 0 to 1")
    if options.filterType and options.expression and not Path(options.expression).is_file():
        made.error(f"no file {options.expression}")
    if options.filterType and options.expression:
        options.expression_text = Path(options.expression).read_text().strip()
    if options.groupSuffix:
        options.group = f"{options.group}_{int(time.time() * 1000) % 100}"
    return options


def start_line(options: argparse.Namespace) -> str:
    """Return what the program says first."""

    def text(value: object) -> str:
        return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    return (
        f"topic: {options.topic}, threadCount {options.threadCount}, group: {options.group}, "
        f"suffix: {text(options.groupSuffix)}, filterType: {text(options.filterType)}, "
        f"expression: {text(options.expression)}, msgTraceEnable: {text(options.msgTraceEnable)}, "
        f"aclEnable: {text(options.aclEnable)}"
    )


class BenchmarkConsumer:
    """Consumes as the options say and prints a line at each interval."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.counts = ConsumeCounts()
        self.window = ConsumeWindow(self.counts, options.format)
        self._random = random.Random()

    async def handle(self, message: ReceivedMessage) -> ConsumeResult:
        """Count one message; fail as often as the options ask."""
        now_ms = int(time.time() * 1000)
        self.counts.took(now_ms - message.born_timestamp, now_ms - message.store_timestamp)
        if self._random.random() < self.options.failRate:
            self.counts.failed += 1
            return ConsumeResult.LATER
        return ConsumeResult.SUCCESS

    async def run(self) -> None:
        """Consume until the time is over, or for ever."""
        options = self.options
        instance = ClientInstance(options.namesrvAddr, instance_name=str(int(time.time() * 1000)))
        consumer = PushConsumer(
            options.group,
            instance=instance,
            concurrency=options.threadCount,
            enable_message_trace=options.msgTraceEnable,
        )
        if options.filterType and options.expression:
            expression = options.expression_text
            print(f"Expression: {expression}", flush=True)
            if options.filterType == "TAG":
                consumer.subscribe(options.topic, expression)(self.handle)
            else:
                consumer.subscribe(options.topic, sql=expression)(self.handle)
        else:
            consumer.subscribe(options.topic)(self.handle)
        loop = asyncio.get_running_loop()
        async with consumer:
            print("Consumer Started.", flush=True)
            begin = loop.time()
            seconds, next_line_s = 1, options.reportInterval / 1000
            while not options.seconds or loop.time() - begin < options.seconds:
                await asyncio.sleep(max(0.0, begin + seconds * SNAPSHOT_S - loop.time()))
                self.window.snapshot(time.time())
                if seconds * SNAPSHOT_S >= next_line_s:
                    next_line_s += options.reportInterval / 1000
                    if self.window.full:
                        print(self.window.line(time.time()), flush=True)
                seconds += 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark consumer until it is interrupted or its time is over."""
    options = checked(arguments)
    print(start_line(options), flush=True)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(BenchmarkConsumer(options).run())
    except KeyboardInterrupt:
        return 130
    except PocketMQError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
