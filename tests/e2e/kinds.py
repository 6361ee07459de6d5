"""Sends of every kind but plain ones, and what must become of them: beside the plain load of a round.

Lives here: ``KindLoad`` and one class for each kind, ``LOADS``; ``Found``, what the logs of the masters hold.

Each load writes down what its receipts promise. ``missing`` names what was promised and is not in the logs (yet:
delays, checks of transactions and repeated commits take their time); ``wrong`` names what must never be there.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pocketmq.client import ClientInstance, ClientOptions, Message, Producer
from pocketmq.client.message.receipts import SendStatus
from pocketmq.client.staged.staged_transaction import StagedTransactions
from pocketmq.client.transaction.transaction_producer import TransactionProducer
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.record_codec import Record

TIMEOUT_MS: Final = 1500
STOP_S_MAX: Final = 90.0
DELAY_LEVEL_MS: Final = 1000
"""Of level 1."""
KEYS: Final = ("a", "b", "c")
OPTIONS: Final = ClientOptions(poll_name_server_interval_ms=200, connect_timeout_ms=1000)

Found = dict[bytes, list[tuple[str, Record]]]
"""Body → the copies of it in the logs of the masters: name of the broker, record."""
Excused = Callable[[int, int], bool]
"""Whether a mode may lose what was sent and acknowledged at these times (``time.monotonic_ns``)."""


@dataclass(slots=True)
class Promise:
    """One message. ``acknowledged``: SEND_OK; ``attempts``: above 1 it may be there more than once."""

    sent_ns: int
    acknowledged_ns: int = 0
    attempts: int = 1
    may_be_twice: bool = False
    key: str = ""
    number: int = 0
    delay_ms: int = 0
    committed: bool | None = None


class KindLoad:
    """Sends of one kind until ``stop``; it can start again. ``life``: part of each body, so that lives do not mix."""

    kind: ClassVar[str]
    topic: ClassVar[str]

    def __init__(self, namesrv: str, life: int, rng: random.Random) -> None:
        self.namesrv = namesrv
        self.life = life
        self.rng = rng
        self.promises: dict[bytes, Promise] = {}
        self._number = 0
        self._stops = False
        self._tasks: list[asyncio.Task[None]] = []

    def instance(self) -> ClientInstance:
        return ClientInstance(self.namesrv, options=OPTIONS)

    async def open(self) -> None:
        """Connect."""
        raise NotImplementedError

    async def close(self) -> None:
        """Disconnect."""
        raise NotImplementedError

    def works(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """Return what sends until ``_stops``."""
        raise NotImplementedError

    def start(self) -> None:
        """Start sending."""
        self._stops = False
        self._tasks = [asyncio.get_running_loop().create_task(work()) for work in self.works()]

    async def stop(self) -> None:
        """Stop, and return when every send has its answer."""
        self._stops = True
        tasks, self._tasks = self._tasks, []
        async with asyncio.timeout(STOP_S_MAX):
            await asyncio.gather(*tasks)

    async def cancel(self) -> None:
        """End at once, after a failure."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def body(self, **more: Any) -> tuple[bytes, Promise]:
        """Return a body that no other message has, and the promise for it."""
        self._number += 1
        body = f"{self.kind}:{self.life}:{self._number}:".encode().ljust(self.rng.choice((24, 60, 300, 1500)), b".")
        promise = self.promises[body] = Promise(time.monotonic_ns(), **more)
        return body, promise

    async def pause(self, most_ms: float) -> None:
        await asyncio.sleep(self.rng.random() * most_ms / 1000)

    async def send(self, producer: Producer, message: Message, promise: Promise) -> None:
        """Send, and write down the receipt or nothing."""
        try:
            receipt = await producer.send(message)
        except PocketMQError as error:
            promise.attempts = max(1, len(getattr(error, "attempts", ())))
            await self.pause(100)
            return
        promise.attempts, promise.may_be_twice = receipt.attempts, receipt.duplicate_possible
        if receipt.status is SendStatus.SEND_OK:
            promise.acknowledged_ns = time.monotonic_ns()

    # ---- judging

    def is_due(self, promise: Promise) -> bool:
        return promise.acknowledged_ns > 0

    def missing(self, found: Found, excused: Excused) -> list[str]:
        """Return what was promised and is not there."""
        return [
            f"{self.kind} {_name(body)}: {promise}"
            for body, promise in self.promises.items()
            if self.is_due(promise)
            and body not in found
            and not excused(promise.sent_ns, promise.acknowledged_ns or promise.sent_ns)
        ]

    def wrong(self, found: Found) -> list[str]:
        """Return what must not be there."""
        begin = f"{self.kind}:{self.life}:".encode()
        return [
            f"{self.kind} {_name(body)} was never sent"
            for body in found
            if body.startswith(begin) and body not in self.promises
        ]


def _name(body: bytes) -> str:
    return body.rstrip(b".").decode()


class OrderedLoad(KindLoad):
    """Messages of some sharding keys, one after the other in each key, with retries."""

    kind = "ordered"
    topic = "OrderedRounds"

    async def open(self) -> None:
        self._producer = Producer("ordered-rounds", instance=self.instance(), send_msg_timeout_ms=TIMEOUT_MS)
        await self._producer.start()

    async def close(self) -> None:
        await self._producer.stop()

    def works(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return [lambda key=key: self._key(key) for key in KEYS]  # type: ignore[misc]

    async def _key(self, key: str) -> None:
        while not self._stops:
            body, promise = self.body(key=key)
            promise.number = self._number
            await self.send(self._producer, Message(self.topic, body, sharding_key=key), promise)
            await self.pause(60)

    def wrong(self, found: Found) -> list[str]:
        """Also: acknowledged messages of one key that lie in a queue in another order."""
        places: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
        for body, promise in self.promises.items():
            copies = found.get(body, ())
            if promise.acknowledged_ns and len(copies) == 1:
                broker, record = copies[0]
                place = (record.queue_offset, promise.number)
                places.setdefault((promise.key, broker, record.queue_id), []).append(place)
        bad = super().wrong(found)
        for (key, broker, queue_id), pairs in places.items():
            numbers = [number for _, number in sorted(pairs)]
            if numbers != sorted(numbers):
                bad.append(f"key {key} at {broker}/{queue_id} is out of order: {numbers}")
        return bad


class DelayedLoad(KindLoad):
    """Messages that come later, by level and by time."""

    kind = "delayed"
    topic = "DelayedRounds"

    async def open(self) -> None:
        self._producer = Producer(
            "delayed-rounds",
            instance=self.instance(),
            send_msg_timeout_ms=TIMEOUT_MS,
            retry_times_when_send_failed=0,
        )
        await self._producer.start()

    async def close(self) -> None:
        await self._producer.stop()

    def works(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return [self._send]

    async def _send(self) -> None:
        while not self._stops:
            by_level = self.rng.random() < 0.5
            delay_ms = DELAY_LEVEL_MS if by_level else self.rng.randrange(300, 2000)
            body, promise = self.body(delay_ms=delay_ms)
            level, given_ms = (1, None) if by_level else (0, delay_ms)
            message = Message(self.topic, body, delay_time_level=level, delay_time_ms=given_ms)
            await self.send(self._producer, message, promise)
            await self.pause(80)

    def wrong(self, found: Found) -> list[str]:
        """Also: messages that were stored for consumers before their time."""
        bad = super().wrong(found)
        for body, promise in self.promises.items():
            for broker, record in found.get(body, ()):
                waited_ms = record.store_timestamp - record.born_timestamp
                if waited_ms < promise.delay_ms:
                    bad.append(f"delayed {_name(body)} at {broker} waited {waited_ms} of {promise.delay_ms} ms")
        return bad


class TransactionalLoad(KindLoad):
    """Half messages whose local transaction commits, rolls back, or leaves the decision to the broker's check."""

    kind = "transactional"
    topic = "TransactionRounds"

    async def open(self) -> None:
        self._decided: dict[bytes, bool] = {}

        async def check(message: ReceivedMessage) -> bool | None:
            return self._decided.get(message.body, False)

        self._producer = TransactionProducer(
            "transaction-rounds",
            instance=self.instance(),
            check=check,
            send_msg_timeout_ms=TIMEOUT_MS,
            retry_times_when_send_failed=0,
        )
        await self._producer.start()

    async def close(self) -> None:
        await self._producer.stop()

    def works(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return [self._send]

    async def _send(self) -> None:
        while not self._stops:
            body, promise = self.body()
            commits, says = self.rng.random() < 0.6, self.rng.random() < 0.8

            async def local(
                message: Any, body: bytes = body, promise: Promise = promise, commits: bool = commits, says: bool = says
            ) -> bool | None:
                self._decided[body] = promise.committed = commits
                return commits if says else None

            with contextlib.suppress(PocketMQError):
                await self._producer.send_in_transaction(Message(self.topic, body), local)
                promise.acknowledged_ns = time.monotonic_ns()
            await self.pause(100)

    def is_due(self, promise: Promise) -> bool:
        return promise.committed is True

    def wrong(self, found: Found) -> list[str]:
        """Also: transactions that are there twice, or were not committed."""
        bad = super().wrong(found)
        for body, promise in self.promises.items():
            copies = len(found.get(body, ()))
            if copies > 1 or (copies and not promise.committed):
                bad.append(f"transaction {_name(body)} (committed: {promise.committed}) is there {copies} times")
        return bad


class StagedLoad(KindLoad):
    """Staged transactions over all brokers, each repeated until it is committed."""

    kind = "staged"
    topic = "StagedRounds"

    async def open(self) -> None:
        self._version = 0
        self._transactions = StagedTransactions("staged-rounds", instance=self.instance(), wait_ms=2000)
        await self._transactions.start()

    async def close(self) -> None:
        await self._transactions.stop()

    def works(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return [self._commit]

    async def _commit(self) -> None:
        import pyarrow as pa

        while not self._stops:
            self._version += 1
            made = [self.body() for _ in range(self.rng.randint(1, 20))]
            rows = pa.record_batch({"body": pa.array([body for body, _ in made], pa.binary())})
            while True:
                try:
                    writer = self._transactions.writer(
                        f"rounds-{self.life}", self._version, topic=self.topic, turn=self._version, chunk_bytes=4096
                    )
                    await writer.write(rows)
                    await self._transactions.commit(f"rounds-{self.life}", self._version, [await writer.close()])
                except PocketMQError:
                    await self.pause(200)
                else:
                    break
            now_ns = time.monotonic_ns()
            for _, promise in made:
                promise.acknowledged_ns = now_ns
            await self.pause(300)

    def wrong(self, found: Found) -> list[str]:
        """Also: rows that are there twice."""
        return super().wrong(found) + [
            f"staged {_name(body)} is there {len(found[body])} times"
            for body in self.promises
            if len(found.get(body, ())) > 1
        ]


LOADS: Final[dict[str, type[KindLoad]]] = {
    each.kind: each for each in (OrderedLoad, DelayedLoad, TransactionalLoad, StagedLoad)
}
