"""Sends that remember their answers: through a producer, or straight to one broker from inside its host.

Lives here: ``Sent``, ``ProducerLoad``; ``python -m tests.e2e.load ADDRESS FIRST FILE``, the insider's process.

An insider sits on a host that a test cuts off, with the old master: a client that has not heard of any other.
"""

import asyncio
import dataclasses
import itertools
import json
import random
import signal
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO

from pocketmq.client import ClientInstance, ClientOptions, Message, Producer
from pocketmq.client.errors import SendFailed
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import NullLog
from pocketmq.common.message_id import UniqueIdGenerator, parse_offset_msg_id
from pocketmq.common.record_codec import PlainRecordBuilder
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader, NativeAppendResponseHeader
from tests.torture.kill_daemon import body_of

TOPIC: Final = "BenchmarkTest"
SEND_OK: Final = "SEND_OK"
TIMEOUT_MS: Final = 1500
TASKS: Final = 10
INSIDER_TASKS: Final = 4
STATUSES: Final = {
    int(ResponseCode.SUCCESS): SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): "FLUSH_DISK_TIMEOUT",
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): "FLUSH_SLAVE_TIMEOUT",
    int(ResponseCode.SLAVE_NOT_AVAILABLE): "SLAVE_NOT_AVAILABLE",
}


@dataclass(slots=True, frozen=True)
class Sent:
    """One message with a confirmed place. Times are the machine's monotonic clock, the same in all hosts."""

    number: int
    address: str
    status: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    sent_ns: int
    answered_ns: int


@dataclass(slots=True)
class ProducerLoad:
    """Many tasks that send through one producer until ``stop``; single messages and small batches.

    No send is tried twice, so that each answer belongs to one broker and one moment.
    """

    namesrv: str
    rng: random.Random
    sent: list[Sent] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    given: int = 0
    """Numbers of messages so far: no other was ever sent."""
    _producer: Producer | None = None
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)
    _stops: bool = False

    async def __aenter__(self) -> Self:
        options = ClientOptions(poll_name_server_interval_ms=200, connect_timeout_ms=1000)
        instance = ClientInstance(self.namesrv, options=options)
        self._producer = Producer(
            "e2e", instance=instance, send_msg_timeout_ms=TIMEOUT_MS, retry_times_when_send_failed=0
        )
        await self._producer.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if self._producer is not None:
            await self._producer.stop()

    def start(self) -> None:
        """Start sending."""
        assert not self._tasks
        self._stops = False
        self._tasks = [asyncio.get_running_loop().create_task(self._send()) for _ in range(TASKS)]

    async def stop(self) -> None:
        """Stop sending, and return when every send is answered or given up."""
        self._stops = True
        tasks, self._tasks = self._tasks, []
        await asyncio.gather(*tasks)

    async def confirmed(self, count: int) -> None:
        """Return once ``count`` more messages have SEND_OK."""
        begin = len(self.sent)
        async with asyncio.timeout(60):
            while sum(each.status == SEND_OK for each in self.sent[begin:]) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def _send(self) -> None:
        assert self._producer is not None
        while not self._stops:
            numbers = range(self.given, self.given + self.rng.choice((1, 1, 1, 4)))
            self.given = numbers.stop
            messages = [Message(TOPIC, body_of(number)) for number in numbers]
            sent_ns = time.monotonic_ns()
            try:
                receipts = await self._producer.send_batch(messages)
            except PocketMQError as error:
                answer = error.attempts[-1].answer_code if isinstance(error, SendFailed) and error.attempts else ""
                self.failed[f"{type(error).__name__} {answer} {error.cause.value}"] += len(numbers)
                await asyncio.sleep(0.05)
                continue
            answered_ns = time.monotonic_ns()
            for number, receipt in zip(numbers, receipts, strict=True):
                host, physical_offset = parse_offset_msg_id(receipt.offset_msg_id)
                self.sent.append(
                    Sent(
                        number,
                        f"{socket.inet_ntoa(host[:4])}:{int.from_bytes(host[4:], 'big')}",
                        receipt.status.value,
                        receipt.queue_id,
                        receipt.queue_offset,
                        physical_offset,
                        sent_ns,
                        answered_ns,
                    )
                )
            await asyncio.sleep(self.rng.uniform(0, 0.015 if receipts[0].status.value == SEND_OK else 0.1))


class Insider:
    """Sends from a host to the broker on it, in its own process, until ``stop``."""

    def __init__(self, prefix: list[str], address: str, first_number: int, path: Path) -> None:
        self._command = [*prefix, sys.executable, "-m", "tests.e2e.load", address, str(first_number), str(path)]
        self._path = path
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process; return once it sends."""
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=asyncio.subprocess.PIPE)
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == b"sending\n"

    async def stop(self) -> list[Sent]:
        """End the process; return its confirmed sends."""
        process, self._process = self._process, None
        if process is None:
            return []
        process.send_signal(signal.SIGTERM)
        await process.wait()
        return [Sent(**json.loads(line)) for line in self._path.read_text().splitlines()]


async def _insider(address: str, first_number: int, path: Path) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    numbers = itertools.count(first_number)
    ids, builder = UniqueIdGenerator(SystemClock()), PlainRecordBuilder("DefaultCluster")
    pool = ChannelPool(clock=SystemClock(), log=NullLog())

    async def send(file: TextIO) -> None:
        while not stop.is_set():
            number = next(numbers)
            record = builder.build(Message(TOPIC, body_of(number)), 0, ids.next().encode(), 1_700_000_000_000)
            header = NativeAppendRequestHeader("e2e", True, [(TOPIC, 0, 1)], TIMEOUT_MS)
            body = len(record).to_bytes(4, "big") + record
            sent_ns = time.monotonic_ns()
            try:
                channel = await pool.get(address)
                answer = await channel.request(RequestCode.NATIVE_APPEND, header, body, timeout_ms=TIMEOUT_MS)
            except (PocketMQError, TimeoutError, OSError):
                await asyncio.sleep(0.05)
                continue
            if isinstance(answer.header, NativeAppendResponseHeader) and answer.header.results:
                code, queue_offset, runs, _ = answer.header.results[0]
                if code in STATUSES and runs:
                    place = (0, queue_offset, runs[0][0])
                    told = Sent(number, address, STATUSES[code], *place, sent_ns, time.monotonic_ns())
                    file.write(json.dumps(dataclasses.asdict(told)) + "\n")
            await asyncio.sleep(0.01)

    try:
        with path.open("a", encoding="utf-8") as file:
            tasks = [asyncio.get_running_loop().create_task(send(file)) for _ in range(INSIDER_TASKS)]
            print("sending", flush=True)
            await asyncio.gather(*tasks)
    finally:
        await pool.close()


if __name__ == "__main__":
    asyncio.run(_insider(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
