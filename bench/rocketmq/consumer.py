"""RocketMQ's benchmark consumer on PocketMQ's SDK: its options, its lines.

    python -m bench.rocketmq.consumer -n 127.0.0.1:9876 -t BenchmarkTest -g benchmark_consumer

Works against PocketMQ and RocketMQ. A thread of ``-w`` is a call of the handler under way. B2C is the time from the
birth of a message at its producer to the handler, S2C that from its store at the broker. ``--format 4.9`` prints the
lines of that version; ``--seconds`` ends the program by itself.

Lives here: options, the handler.
"""

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.rocketmq import program
from bench.rocketmq.lines import ConsumeCounts, ConsumeWindow
from bench.rocketmq.program import boolean, java_text
from pocketmq.client import ConsumeResult, PushConsumer, ReceivedMessage


def checked(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; ends the program with a line where one cannot be done."""
    made = program.parser("benchmarkConsumer", __doc__, threads=20)
    add = made.add_argument
    add("-g", "--group", default="benchmark_consumer", help="Consumer group name, default benchmark_consumer")
    add("-p", "--groupSuffix", type=boolean, default=False, help="Add a suffix to the group, default false")
    add("-f", "--filterType", choices=("TAG", "SQL92"), help="TAG, SQL92")
    add("-e", "--expression", help="filter expression content file path, e.g. ./test/expr")
    add("-r", "--failRate", type=float, default=0.0, help="consumer fail rate, default 0")
    add("--seconds", type=float, default=0.0, help="end after so long, default 0: never")
    options = program.parsed(made, arguments, {})
    if not 0 <= options.failRate <= 1:
        made.error("failRate must be from 0 to 1")
    if options.filterType and options.expression:
        if not Path(options.expression).is_file():
            made.error(f"no file {options.expression}")
        options.expression_text = Path(options.expression).read_text().strip()
    if options.groupSuffix:
        options.group = f"{options.group}_{int(time.time() * 1000) % 100}"
    return options


def start_line(options: argparse.Namespace) -> str:
    """Return the first line of the program."""
    return (
        f"topic: {options.topic}, threadCount {options.threadCount}, group: {options.group}, "
        f"suffix: {java_text(options.groupSuffix)}, filterType: {java_text(options.filterType)}, "
        f"expression: {java_text(options.expression)}, msgTraceEnable: {java_text(options.msgTraceEnable)}, "
        f"aclEnable: {java_text(options.aclEnable)}"
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
        consumer = PushConsumer(
            options.group,
            instance=program.instance(options),
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
        async with consumer:
            print("Consumer Started.", flush=True)
            await program.report(self.window, options.reportInterval, options.seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark consumer until it is interrupted or its time is over."""
    options = checked(arguments)
    return program.run(start_line(options), BenchmarkConsumer(options).run())


if __name__ == "__main__":
    sys.exit(main())
