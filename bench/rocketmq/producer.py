"""RocketMQ's benchmark producer on PocketMQ's SDK: its options, its lines.

    python -m bench.rocketmq.producer -n 127.0.0.1:9876 -t BenchmarkTest -w 64 -s 1024

Works against PocketMQ and RocketMQ. ``-b`` sends batches and prints the lines of RocketMQ's BatchProducer. A thread of
``-w`` is a task here: it waits for its answer before it sends again, as a thread of RocketMQ's does. ``--format 4.9``
prints the lines of that version. After a failed send a task rests for 3 s; RocketMQ's threads do so after most errors.

Lives here: options, the sending tasks.
"""

import argparse
import asyncio
import random
import string
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench.rocketmq import program
from bench.rocketmq.lines import SendCounts, SendWindow
from bench.rocketmq.program import boolean, java_text
from pocketmq.client import Message, Producer, SendFailed, SendStatus
from pocketmq.common.errors import PocketMQError

GROUP = "benchmark_producer"
ASYNC_QUEUED_MAX = 10_000
"""Producer.MAX_LENGTH_ASYNC_QUEUE: an asynchronous producer rests while more wait."""
ASYNC_REST_S = 0.1
FAILED_REST_S = 3.0


def checked(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; ends the program with a line where one cannot be done."""
    made = program.parser("benchmarkProducer", __doc__, threads=64)
    add = made.add_argument
    add("-s", "--messageSize", type=int, default=128, help="Message size, default 128")
    add("-b", "--batchSize", type=int, default=1, help="Batch size, default 1 (RocketMQ's BatchProducer: 16)")
    add("-k", "--keyEnable", type=boolean, default=False, help="Message key enable, default false")
    add("-p", "--propertySize", type=int, default=0, help="Bytes of properties, default 0")
    add("-l", "--tagCount", type=int, default=0, help="Tag count, default 0")
    add("-q", "--messageQuantity", type=int, default=0, help="Send quantity, default 0, running forever")
    add("-d", "--delayEnable", type=boolean, default=False, help="Delay message enable, default false")
    add("-e", "--delayLevel", type=int, default=1, help="Delay message level, default 1")
    add("-y", "--asyncEnable", type=boolean, default=False, help="Enable async produce, default false")
    add("-c", "--compressEnable", type=boolean, default=False, help="Enable compress, default false")
    add("-ct", "--compressType", default="ZLIB", help="LZ4, ZSTD or ZLIB (the default)")
    add("-cl", "--compressLevel", type=int, default=5, help="Compress level, default 5")
    add("-ch", "--compressOverHowMuch", type=int, default=4096, help="Compress a body over how much, default 4096")
    options = program.parsed(made, arguments, {"messageSize": 1, "batchSize": 1, "messageQuantity": 0})
    if options.batchSize > 1 and options.asyncEnable:
        made.error("-b and -y true exclude each other, as in RocketMQ's two programs")
    if options.asyncEnable:
        options.threadCount = 1
    return options


def start_line(options: argparse.Namespace) -> str:
    """Return the first line of the program."""

    def texts(*names: str) -> list[str]:
        return [f"{name}: {java_text(getattr(options, name))}" for name in names]

    common = [*texts("keyEnable", "propertySize", "tagCount"), f"traceEnable: {java_text(options.msgTraceEnable)}"]
    common += texts("aclEnable")
    sizes = texts("topic", "threadCount", "messageSize")
    if options.batchSize > 1:
        return ", ".join([*sizes, *texts("batchSize"), *common])
    lines = [[*sizes, *common, *texts("messageQuantity")], texts("delayEnable", "delayLevel"), texts("asyncEnable")]
    return "\n".join(" ".join(line) for line in lines)


def properties_of(size_bytes: int, start: int) -> dict[str, str]:
    """Return properties until names and values are longer than ``size_bytes``, as Producer.buildMessage makes them."""
    made: dict[str, str] = {}
    number = held = 0
    while held <= size_bytes:
        pair = {f"prop{number}": f"hello{start}", f"prop{number + 1}": str(start)}
        made |= pair
        held += sum(len(name) + len(value) for name, value in pair.items())
        number, start = number + 2, start + 2
    return made


class BenchmarkProducer:
    """Sends as the options say until the quantity is sent, or for ever."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.counts = SendCounts()
        self.window = SendWindow(self.counts, options.format, options.batchSize > 1)
        letters = random.Random().choices(string.ascii_letters + string.digits, k=options.messageSize)
        self._body = "".join(letters).encode()
        self._pending = 0

    def message(self) -> Message:
        """Make a message as the options ask."""
        options = self.options
        now_ms = int(time.time() * 1000)
        return Message(
            options.topic,
            self._body,
            keys=str(now_ms // 1000) if options.keyEnable else (),
            tags=f"tag{now_ms % options.tagCount}" if options.tagCount > 0 else "",
            properties=properties_of(options.propertySize, now_ms % 100) if options.propertySize > 0 else None,
            delay_time_level=options.delayLevel if options.delayEnable else 0,
        )

    def _failed(self, error: Exception, messages: int) -> None:
        refused = isinstance(error, SendFailed) and bool(error.attempts) and error.attempts[-1].phase == "answer"
        self.counts.failed(answered=refused, messages=messages)
        if self.counts.messages_failed == messages:  # the first says it; RocketMQ writes each to its log
            print(f"[BENCHMARK_PRODUCER] Send Exception: {error}", file=sys.stderr)

    async def _task(self, producer: Producer, quantity: int) -> None:
        """Send and wait, ``quantity`` messages, or for ever when it is 0."""
        options, left = self.options, quantity
        while not quantity or left > 0:
            count = min(options.batchSize, left) if quantity else options.batchSize
            left -= count
            begin = time.perf_counter()
            try:
                if options.batchSize > 1:
                    await producer.send_batch([self.message() for _ in range(count)])
                    self.counts.took(int((time.perf_counter() - begin) * 1000), count)
                elif options.asyncEnable:
                    await self._send_async(producer, begin)
                else:
                    receipt = await producer.send(self.message())
                    if receipt.status is not SendStatus.SEND_OK:
                        self.counts.failed(answered=True)
                    else:
                        self.counts.took(int((time.perf_counter() - begin) * 1000))
            except PocketMQError as error:
                self._failed(error, count)
                await asyncio.sleep(FAILED_REST_S)

    async def _send_async(self, producer: Producer, begin: float) -> None:
        while self._pending > ASYNC_QUEUED_MAX:  # noqa: ASYNC110  (as RocketMQ's)
            await asyncio.sleep(ASYNC_REST_S)

        def done(future: "asyncio.Future[Any]") -> None:
            self._pending -= 1
            error = future.exception()
            if error is None:
                self.counts.took(int((time.perf_counter() - begin) * 1000))
            else:
                self.counts.failed(answered=False)  # RocketMQ counts every onException so

        self._pending += 1
        try:
            producer.send_nowait(self.message()).add_done_callback(done)
        except BaseException:
            self._pending -= 1
            raise
        if self._pending % 64 == 0:
            await asyncio.sleep(0)

    async def run(self) -> None:
        """Send; return when the quantity has been sent."""
        options = self.options
        settings: dict[str, Any] = {}
        if options.compressEnable:
            settings = {
                "compress_type": options.compressType,
                "compress_level": options.compressLevel,
                "compress_msg_body_over_howmuch": options.compressOverHowMuch,
            }
        traced = options.msgTraceEnable
        producer = Producer(GROUP, instance=program.instance(options), enable_message_trace=traced, **settings)
        share, rest = divmod(options.messageQuantity, options.threadCount)
        shares = [share + (rest if not number else 0) for number in range(options.threadCount)]
        async with producer:
            reporting = asyncio.create_task(program.report(self.window, options.reportInterval))
            try:
                wanted = [each for each in shares if each or not options.messageQuantity]
                await asyncio.gather(*(self._task(producer, each) for each in wanted))
                while self._pending:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            finally:
                reporting.cancel()
                await asyncio.gather(reporting, return_exceptions=True)
        self.window.snapshot(time.time())
        print(self.window.complete(), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark producer until it is done or interrupted."""
    options = checked(arguments)
    return program.run(start_line(options), BenchmarkProducer(options).run())


if __name__ == "__main__":
    sys.exit(main())
