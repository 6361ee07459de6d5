"""Programs that use the cluster: producers of every kind, and consumers of every kind.

Lives here: ``ProducerProgram``, ``ConsumerProgram``, ``Operator``.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.ha_admin import HaAdmin
from pocketmq.client.admin.promotion import promote
from pocketmq.client.connection.instance import ClientInstance, ClientOptions
from pocketmq.client.message.receipts import SendStatus
from pocketmq.client.producer.producer import Producer
from pocketmq.client.pull.offsets import ConsumeFromWhere
from pocketmq.client.pull.pull_consumer import PullConsumer
from pocketmq.client.push.push_consumer import PushConsumer
from pocketmq.client.staged.staged_transaction import StagedTransactions
from pocketmq.client.transaction.transaction_producer import TransactionProducer
from pocketmq.common.errors import PocketMQError, Stored
from pocketmq.common.message import Message, ReceivedMessage
from tests.cluster_sim.kernel import NS_PER_MS
from tests.cluster_sim.ledger import Ledger, Sent
from tests.cluster_sim.machines import Machine, Process

BATCH: Final = 16
SLOWER: Final = 4
OPTIONS: Final = ClientOptions(poll_name_server_interval_ms=5_000, heartbeat_broker_interval_ms=5_000)
FIRST: Final = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Program:
    """One life of a client's process."""

    def __init__(self, machine: Machine, namesrv: str, ledger: Ledger) -> None:
        self.machine = machine
        self.namesrv = namesrv
        self.ledger = ledger
        self.process: Process
        self.rng: random.Random
        self.errors: list[BaseException] = []
        self.stop_asked = False
        self.running = 0

    def start(self) -> None:
        self.process = process = self.machine.start()
        self.rng = random.Random(self.machine.rng.getrandbits(64))
        self.stop_asked = False
        self.running = 0
        for work in self.works():
            self.running += 1
            process.run(lambda work=work: self._guarded(work), work.__name__)  # type: ignore[misc]

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception as error:
            self.errors.append(error)
            self.ledger.problems.append(f"{self.machine.name}: {work.__name__}: {error!r}")
        finally:
            self.running -= 1

    @property
    def now_ns(self) -> int:
        return self.machine.kernel.now_ns

    def instance(self) -> ClientInstance:
        process = self.process
        return ClientInstance(
            self.namesrv,
            options=OPTIONS,
            clock=process.clock,
            rng=random.Random(self.rng.getrandbits(64)),
            instance_name=f"{process.name}-{process.kernel.number()}",
            log=process.log,
        )

    def works(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        raise NotImplementedError


class ProducerProgram(Program):
    """Sends until it is asked to stop: plain messages in crowds, keyed ones in order, delayed ones, transactions."""

    def __init__(self, machine: Machine, namesrv: str, ledger: Ledger) -> None:
        super().__init__(machine, namesrv, ledger)
        self.number = 0
        self.wanted = 1000
        """Once so many messages are acknowledged, it sends less often: what is left are faults."""
        self.decided: dict[bytes, bool] = {}
        """The database of the local transactions: it outlives the process."""

    def works(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return [self.plain, self.keyed, self.delayed, self.transactions, self.staged]

    def body(self, kind: str) -> bytes:
        self.number += 1
        return f"{kind}{self.number}:".encode().ljust(self.rng.choice((16, 40, 200, 900, 1800)), b".")

    def note_receipt(self, sent: Sent, receipt: Any) -> None:
        """Write down what a receipt promises."""
        sent.place = (receipt.broker, receipt.topic, receipt.queue_id, receipt.queue_offset)
        sent.attempts = receipt.attempts
        sent.may_be_twice = receipt.duplicate_possible
        self.ledger.end(sent, "ok" if receipt.status is SendStatus.SEND_OK else "stored", self.now_ns)

    def note_error(self, sent: Sent, error: PocketMQError) -> None:
        """Write down what an error says."""
        outcome = {Stored.NO: "no", Stored.YES: "yes"}.get(error.stored, "unknown")
        sent.attempts = len(getattr(error, "attempts", ()))
        self.ledger.end(sent, outcome, self.now_ns)

    async def pause(self, most_ms: float) -> None:
        if self.ledger.acknowledged >= self.wanted:
            most_ms *= SLOWER
        await asyncio.sleep(self.rng.random() * most_ms / 1000)

    async def plain(self) -> None:
        """Crowds of messages, each sent once."""
        producer = Producer(
            "plain", instance=self.instance(), retry_times_when_send_failed=0, retry_times_when_send_async_failed=0
        )
        async with producer:
            while not self.stop_asked:
                count = self.rng.randint(1, BATCH)
                bodies = [self.body("P") for _ in range(count)]
                sents = [self.ledger.begin(body, "plain", self.now_ns) for body in bodies]
                futures = [asyncio.ensure_future(producer.send(Message("plain", body))) for body in bodies]
                for sent, result in zip(sents, await asyncio.gather(*futures, return_exceptions=True), strict=True):
                    self.note(sent, result)
                await self.pause(200)

    def note(self, sent: Sent, result: Any) -> None:
        if isinstance(result, PocketMQError):
            self.note_error(sent, result)
        elif isinstance(result, BaseException):
            raise result
        else:
            self.note_receipt(sent, result)

    async def keyed(self) -> None:
        """Messages of some keys, those of one key one after the other, with retries."""
        async with Producer("keyed", instance=self.instance()) as producer:

            async def one_key(key: str) -> None:
                number = 0
                while not self.stop_asked:
                    number += 1
                    body = self.body(f"K{key}-{number}-")
                    sent = self.ledger.begin(body, "keyed", self.now_ns, key=key, number=number)
                    try:
                        receipt = await producer.send(Message("ordered", body, sharding_key=key))
                    except PocketMQError as error:
                        self.note_error(sent, error)
                        await self.pause(200)
                    else:
                        self.note_receipt(sent, receipt)
                    await self.pause(100)

            await asyncio.gather(*(one_key(key) for key in "abcde"))

    async def delayed(self) -> None:
        """Messages that come later."""
        async with Producer("delayed", instance=self.instance(), retry_times_when_send_failed=0) as producer:
            while not self.stop_asked:
                body = self.body("D")
                level = self.rng.choice((0, 1, 2, 3))
                delay_ms = {0: self.rng.randint(500, 4000), 1: 1000, 2: 2000, 3: 3000}[level]
                message = (
                    Message("delayed", body, delay_time_level=level)
                    if level
                    else Message("delayed", body, delay_time_ms=delay_ms)
                )
                kind = "level" if level else "timer"
                sent = self.ledger.begin(body, kind, self.now_ns, delay_ns=delay_ms * NS_PER_MS)
                try:
                    self.note_receipt(sent, await producer.send(message))
                except PocketMQError as error:
                    self.note_error(sent, error)
                await self.pause(300)

    async def transactions(self) -> None:
        """Half messages whose local transaction commits, rolls back, or leaves it to the check."""

        async def check(message: ReceivedMessage) -> bool | None:
            return self.decided.get(message.body, False)

        producer = TransactionProducer("tx", instance=self.instance(), check=check, retry_times_when_send_failed=0)
        async with producer:
            while not self.stop_asked:
                body = self.body("T")
                sent = self.ledger.begin(body, "transaction", self.now_ns)
                decision = self.rng.choice((True, True, False))
                silent = self.rng.random() < 0.2

                async def local(message: Any, body: bytes = body, sent: Sent = sent) -> bool | None:
                    self.decided[body] = sent.committed = decision  # noqa: B023
                    return None if silent else decision  # noqa: B023

                try:
                    await producer.send_in_transaction(Message("tx", body), local)
                except PocketMQError as error:
                    self.note_error(sent, error)
                else:
                    self.ledger.end(sent, "ok", self.now_ns)
                await self.pause(250)
            self.running -= 1
            await asyncio.Event().wait()  # brokers may ask for what was left to the check

    async def staged(self) -> None:
        """Staged transactions over all brokers, each repeated until it is committed."""
        import pyarrow  # its threads do not survive a fork

        version = 0
        transactions = StagedTransactions("staged", instance=self.instance(), wait_ms=2000)
        async with transactions:
            while not self.stop_asked:
                version += 1
                bodies = [self.body("S") for _ in range(self.rng.randint(1, 12))]
                sents = [self.ledger.begin(body, "staged", self.now_ns) for body in bodies]
                while True:
                    try:
                        writer = transactions.writer("id", version, topic="staged", turn=version, chunk_bytes=4096)
                        await writer.write(pyarrow.record_batch({"body": pyarrow.array(bodies, pyarrow.binary())}))
                        await transactions.commit("id", version, [await writer.close()])
                    except PocketMQError:
                        await self.pause(500)
                    else:
                        break
                for sent in sents:
                    self.ledger.end(sent, "ok", self.now_ns)
                await self.pause(600)


class ConsumerProgram(Program):
    """A member of a push group, of an ordered push group, and a pull consumer."""

    def works(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return [self.push, self.ordered, self.pull]

    async def push(self) -> None:
        consumer = PushConsumer(
            "push",
            instance=self.instance(),
            consume_from_where=FIRST,
            rebalance_interval_ms=3000,
            persist_interval_ms=1000,
            retry_delay_ms=1000,
        )

        async def handle(message: ReceivedMessage) -> None:
            self.saw("push", message)
            await asyncio.sleep(self.rng.random() * 0.003)

        for topic in ("plain", "delayed", "tx", "staged"):
            consumer.subscribe(topic)(handle)
        await self.serve(consumer)

    async def ordered(self) -> None:
        consumer = PushConsumer(
            "ordered",
            instance=self.instance(),
            consume_from_where=FIRST,
            rebalance_interval_ms=3000,
            persist_interval_ms=1000,
            lock_interval_ms=3000,
            lock_max_live_ms=8000,
        )

        async def handle(message: ReceivedMessage) -> None:
            self.saw("ordered", message)
            queue = (message.broker_name, message.topic, message.queue_id)
            self.ledger.enter(queue, self.process.name, self.now_ns)
            await asyncio.sleep(self.rng.random() * 0.08)
            self.ledger.leave(queue, self.process.name)

        consumer.subscribe("ordered", ordered=True)(handle)
        await self.serve(consumer)

    async def serve(self, consumer: PushConsumer) -> None:
        async with consumer:
            await asyncio.Event().wait()

    async def pull(self) -> None:
        consumer = PullConsumer(f"pull-{self.machine.name}", instance=self.instance())
        async with consumer:
            while not self.stop_asked:
                try:
                    messages = await consumer.poll("plain", max_messages=64, timeout_ms=500)
                    for message in messages:
                        self.saw(consumer.group, message)
                    await consumer.commit()
                except PocketMQError:
                    await asyncio.sleep(0.3)

    def saw(self, group: str, message: ReceivedMessage) -> None:
        queue = (message.broker_name, message.topic, message.queue_id)
        self.ledger.saw(group, message.body, queue, message.queue_offset, self.now_ns, self.process.name)


class Operator(Program):
    """Promotes and demotes, as ``pocketmq ha`` does."""

    def works(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return []

    def order(self, call: Callable[[HaAdmin], Coroutine[Any, Any, Any]]) -> list[Any]:
        """Carry out an order; the list gets its result or its error."""
        results: list[Any] = []

        async def work() -> None:
            admin = Admin(instance=self.instance())
            await admin.start()
            try:
                result = await call(HaAdmin(admin))
            except PocketMQError as error:
                result = error
            await admin.stop()
            results.append(result)

        self.process.run(work, "order")
        return results

    def promote(self, broker_name: str) -> list[Any]:
        return self.order(lambda ha: promote(ha, broker_name))

    def demote(self, address: str, broker_name: str, broker_id: int) -> list[Any]:
        return self.order(lambda ha: ha.demote(address, broker_name, broker_id))

    def status(self, address: str) -> list[Any]:
        return self.order(lambda ha: ha.status(address))
