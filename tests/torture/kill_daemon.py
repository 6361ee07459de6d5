"""``kill -9`` of a real broker process under load, again and again on one store.

Lives here: ``KillRounds``: start ``pocketmq standalone``, send from many tasks, kill it at some moment, check a copy
of what it left, start it again on the rest.

What must hold after each kill: every message with a receipt is at its place; a queue has no gap; nothing was invented;
no end of a queue went back; no damage. The page cache survives the process, so this holds for both flush modes.
"""

import asyncio
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pocketmq.client import Message, Producer
from pocketmq.common.errors import PocketMQError
from pocketmq.common.record_codec import decode_record
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore
from tests.modes import Mode

TOPIC = "killed"
TASKS = 24
SETTINGS: dict[str, object] = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20 * 2000,
    "max_hash_slot_num": 1000,
    "max_index_num": 50_000,
    "checkpoint_interval": 200,
    "flush_interval_commit_log": 50,
    "flush_interval_consume_queue": 100,
}

DEFAULT = Mode("mapped", "none", "ASYNC_FLUSH", "alone")


def body_of(number: int) -> bytes:
    """Return the body of the message with this number: its content follows from the number alone."""
    return b"%d:" % number + bytes([number % 251 + 1]) * (number * 37 % 1500)


@dataclass(slots=True)
class KillRounds:
    """Rounds on one store. ``acknowledged``: (queue id, queue offset) → number of the message."""

    directory: Path
    rng: random.Random
    mode: Mode = DEFAULT
    acknowledged: dict[tuple[int, int], int] = field(default_factory=dict)
    sent: int = 0
    rounds: int = 0
    torn_tails: int = 0

    def run(self) -> None:
        """One round: start, load, kill, check a copy."""
        process, namesrv = self._start()
        try:
            asyncio.run(self._load(process, namesrv))
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(30)
            assert process.stdout is not None
            process.stdout.close()
        self.rounds += 1
        self.check()

    def _config(self) -> dict[str, object]:
        return SETTINGS | self.mode.store_settings

    def _start(self) -> tuple["subprocess.Popen[str]", str]:
        command = [sys.executable, "-m", "pocketmq.cli.main", "standalone", "--data-dir", str(self.directory / "data")]
        command += ["--namesrv-port", "0", "--broker-port", "0", "--set", "log.level=error"]
        command += ["--set", "metrics.listen_port=0"]
        for name, value in self._config().items():
            command += ["--set", f"store.{name}={value}"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready "):
            process.kill()
            raise AssertionError(f"the broker did not start after a kill: {line!r}")
        return process, dict(part.split("=", 1) for part in line.split()[1:])["namesrv"]

    async def _load(self, process: "subprocess.Popen[str]", namesrv: str) -> None:
        first_receipt = asyncio.Event()
        # sends that are cancelled with the broker leave futures behind that are never awaited
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        async with Producer(group="torture", namesrv=namesrv, send_msg_timeout_ms=1000) as producer:

            async def send() -> None:
                while process.poll() is None:
                    numbers = range(self.sent, self.sent + self.rng.choice((1, 1, 1, 5, 40)))
                    self.sent = numbers.stop
                    messages = [Message(TOPIC, body_of(number), keys=[f"k{number}"]) for number in numbers]
                    try:
                        receipts = await producer.send_batch(messages)
                    except PocketMQError:
                        await asyncio.sleep(0.01)
                        continue
                    for number, receipt in zip(numbers, receipts, strict=True):
                        if receipt.status.name == "SEND_OK":
                            self.acknowledged[receipt.queue_id, receipt.queue_offset] = number
                    first_receipt.set()

            tasks = [asyncio.create_task(send()) for _ in range(TASKS)]
            async with asyncio.timeout(30):
                await first_receipt.wait()
            await asyncio.sleep(self.rng.uniform(0.0, 0.4))
            process.kill()
            process.wait(30)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def check(self) -> None:
        """Open a copy of the killed store and compare."""
        copy = self.directory / "copy"
        shutil.copytree(self.directory / "data", copy)
        config = msgspec.convert(self._config() | {"store_path_root_dir": str(copy)}, StoreConfig)
        store = MessageStore(config)
        report = store.open()
        try:
            assert (report.kind, report.damaged, report.suspect) == ("unclean", [], []), report
            self.torn_tails += report.cut_bytes > 0
            found: dict[tuple[int, int], int] = {}
            for topic, queue_id, min_offset, max_offset in store.queues():
                if topic == TOPIC:
                    found.update(_read_queue(store, queue_id, min_offset, max_offset))
            lost = {place: number for place, number in self.acknowledged.items() if found.get(place) != number}
            assert not lost, f"lost or changed: {list(lost.items())[:5]} and {len(lost)} in all"
            assert max(found.values(), default=0) < self.sent, "a message that nobody sent"
            number = max(self.acknowledged.values())
            assert store.query(TOPIC, f"k{number}", 0, 1 << 60, 10), f"key k{number} is not found"
        finally:
            store.close()
            shutil.rmtree(copy)


def _read_queue(
    store: MessageStore, queue_id: int, min_offset: int, max_offset: int
) -> Iterator[tuple[tuple[int, int], int]]:
    offset = min_offset
    while offset < max_offset:
        got = store.get(TOPIC, queue_id, offset, max_messages=500, max_bytes=1 << 20)
        data, at = got.body.tobytes(), 0
        assert got.count, f"queue {queue_id} has nothing at {offset} of {max_offset}"
        for size in got.sizes.tolist():
            record = decode_record(data[at : at + size])
            assert record.queue_offset == offset, f"queue {queue_id}: {record.queue_offset} at {offset}"
            number = int(record.body.split(b":", 1)[0])
            assert record.body == body_of(number), f"the body of message {number} has changed"
            yield (queue_id, offset), number
            offset += 1
            at += size
