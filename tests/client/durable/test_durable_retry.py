"""A producer with a durable retry, against real and scripted brokers: it keeps, reports and delivers messages."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import Message, Producer, PullConsumer, SendFailed, SendStatus, blocking
from pocketmq.client.durable import (
    DurableRetry,
    GivenUpError,
    NotSafe,
    RetryRule,
    RetryStoreCorrupt,
    RetryStoreFull,
    RetryStoreLocked,
    RetryStoreUnreachable,
    StoredForRetry,
    StoreWait,
)
from pocketmq.client.durable.memory_store import MemoryStore
from pocketmq.client.errors import NotStarted
from pocketmq.common.errors import ConfigError, Stored
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.client.durable.fakes import FaultyStore
from tests.client.real_cluster import RealCluster
from tests.client.scripted import NATIVE, store
from tests.remoting.harness import until
from tests.remoting.protected_servers import ALICE, ProofOfAlice

SOON = (RetryRule(backoff_ms_first=20, backoff_ms_max=40),)
REFUSED = (
    ResponseCode.SYSTEM_BUSY,
    "[REJECTREQUEST]system busy",
    None,
    b"",
    {"cause": "page_cache_busy", "stored": "no"},
)


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[RealCluster]:
    """A name server and one broker with topic Orders, two queues."""
    running = RealCluster(tmp_path)
    await running.start("a")
    await running.create_topic("Orders")
    yield running
    await running.stop_all()


def producer_of(namesrv: str, retry: DurableRetry, **options: Any) -> Producer:
    return Producer("orders", namesrv=namesrv, durable_retry=retry, **{"send_msg_timeout_ms": 10_000, **options})


async def bodies(namesrv: str, topic: str = "Orders") -> list[tuple[bytes, str]]:
    async with PullConsumer("audit", namesrv=namesrv) as consumer:
        return [(m.body, m.msg_id) async for m in consumer.stream(topic, start="earliest", stop_at_end=True)]


@pytest.mark.parametrize("order_by_key", [True, False])
def test_the_durable_retry_is_a_stage_like_any_other(order_by_key: bool) -> None:
    """It is the last stage, whatever its position. Without ``order_by_key`` it sees only failed sends."""
    for place in ("durable_retry", "stages"):
        retry = DurableRetry("memory:", order_by_key=order_by_key)
        given: Any = retry if place == "durable_retry" else [retry]
        producer = Producer("g", namesrv="127.0.0.1:1", enable_message_trace=True, **{place: given})
        chain = producer._chain
        hooks = chain.hooks(100)
        assert chain.stages[-1] is retry
        assert ((hooks.take, hooks.place) == (retry.take, retry.place)) is order_by_key
        assert (hooks.take, hooks.place) == (None, None) or order_by_key
        assert chain.keeps_order is order_by_key
        assert chain.keeping_failed == (retry.failed,)
        assert hooks.unrouted is not None


async def test_a_refused_message_is_kept_reported_and_delivered_later(real: RealCluster) -> None:
    """The caller gets STORED_FOR_RETRY at once; later the broker has it once, under the same id."""
    real.refuse("a")
    delivered: list[Any] = []
    retry = DurableRetry(
        MemoryStore(), rules=SOON, on_delivered=lambda kept, receipt: delivered.append((kept.uniq_key, receipt.broker))
    )
    async with producer_of(real.namesrv, retry) as producer:
        receipt = await producer.send(Message("Orders", b"one", keys="k", tags="t"))
        assert isinstance(receipt, StoredForRetry)
        assert receipt.status is SendStatus.STORED_FOR_RETRY
        assert (receipt.broker, receipt.queue_id, receipt.queue_offset) == ("", -1, -1)
        assert "no broker has confirmed it" in receipt.durability
        assert "memory" in receipt.durability
        assert not receipt.duplicate_possible
        assert isinstance(receipt.error, SendFailed)
        assert retry.state.waiting == 1
        assert not receipt.is_delivered
        real.refuse("a", None)
        final = await receipt.delivered()
        assert final.status is SendStatus.SEND_OK
        assert final.msg_id == receipt.msg_id
        assert receipt.is_delivered
        assert delivered == [(receipt.msg_id.encode(), "a")]
        assert (retry.state.waiting, retry.delivered_total, retry.kept_total) == (0, 1, 1)
    assert await bodies(real.namesrv) == [(b"one", receipt.msg_id)]


async def test_every_way_to_send_is_covered(real: RealCluster) -> None:
    """send, send_nowait, send_batch, send_arrow, with and without keys, with a selector: all are kept and delivered."""
    pa = pytest.importorskip("pyarrow")
    real.refuse("a")
    retry = DurableRetry(MemoryStore(), rules=SOON)
    async with producer_of(real.namesrv, retry) as producer:
        receipts = [await producer.send_nowait(Message("Orders", b"1"))]
        receipts.append(await producer.send(Message("Orders", b"2", sharding_key="k")))
        receipts.append(await producer.send(Message("Orders", b"3"), selector=lambda queues, message: 1))
        receipts += await producer.send_batch([Message("Orders", b"4"), Message("Orders", b"5", sharding_key="k")])
        receipts += await producer.send_arrow(pa.RecordBatch.from_pydict({"body": [b"6", b"7"]}), topic="Orders")
        receipts.append(await producer.send(Message("Orders", b"8", delay_time_ms=1)))
        assert {receipt.status for receipt in receipts} == {SendStatus.STORED_FOR_RETRY}
        real.refuse("a", None)
        finals = [await receipt.delivered() for receipt in receipts if isinstance(receipt, StoredForRetry)]
        assert finals[2].queue_id == 1
    seen: set[bytes] = set()
    async with asyncio.timeout(60):
        while len(seen) < 8:  # the delayed one waits in the broker
            seen = {body for body, _ in await bodies(real.namesrv)}
    assert seen == {b"%d" % number for number in range(1, 9)}


async def test_messages_wait_for_the_next_process(real: RealCluster, tmp_path: Path) -> None:
    """The next producer with the same store delivers the messages left in it; the first one reports them."""
    pytest.importorskip("rocksdict")
    real.refuse("a")
    url = f"rocksdb://{tmp_path / 'retry'}"
    async with producer_of(real.namesrv, DurableRetry(url, rules=SOON)) as producer:
        receipts = [await producer.send(Message("Orders", b"%d" % number)) for number in range(5)]
        assert "end of the process" in receipts[0].durability
    assert isinstance(receipts[0], StoredForRetry)
    with pytest.raises(NotStarted):
        await receipts[0].delivered()
    real.refuse("a", None)
    retry = DurableRetry(url, rules=SOON)
    async with producer_of(real.namesrv, retry):
        async with asyncio.timeout(60):
            while retry.delivered_total < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert sorted(await bodies(real.namesrv)) == sorted((b"%d" % n, r.msg_id) for n, r in enumerate(receipts))


async def test_a_stop_keeps_what_is_in_flight(cluster: Any) -> None:
    """A send without an answer at the producer's end is kept; its receipt warns of a possible duplicate."""
    broker = await cluster.add("a")
    cluster.topics["Orders"] = ["a"]
    broker.answers[RequestCode.NATIVE_APPEND] = lambda connection, request: None
    store = MemoryStore()
    options = {"retry_times_when_send_failed": 0, "send_msg_timeout_ms": 1000}
    producer = producer_of(cluster.namesrv.address, DurableRetry(store), **options)
    await producer.start()
    future = producer.send_nowait(Message("Orders", b"x"))
    await producer.stop()
    receipt = await future
    assert receipt.status is SendStatus.STORED_FOR_RETRY
    assert receipt.duplicate_possible
    assert store.open().count == 1


async def test_no_route_and_no_name_server_are_kept_too(real: RealCluster) -> None:
    """A message waits for a topic that does not exist yet; with an order its key stays in order."""
    retry = DurableRetry(MemoryStore(), rules=SOON, order_by_key=True)
    async with producer_of(real.namesrv, retry) as producer:
        receipts = [await producer.send(Message("New", b"%d" % n, sharding_key="k")) for n in range(3)]
        plain = await producer.send(Message("New", b"plain"))
        assert retry.state.waiting == 4
        await real.create_topic("New")
        async with asyncio.timeout(60):
            finals = [await each.delivered() for each in (*receipts, plain) if isinstance(each, StoredForRetry)]
    assert len({(final.broker, final.queue_id) for final in finals[:3]}) == 1
    got = [body for body, _ in await bodies(real.namesrv, "New") if body != b"plain"]
    assert got == [b"0", b"1", b"2"]


async def test_later_messages_of_a_key_go_behind(real: RealCluster) -> None:
    """Later messages of a waiting key wait too, others do not; at last each key is in order."""
    rules = (RetryRule(backoff_ms_first=3_600_000, backoff_ms_max=3_600_000),)
    retry = DurableRetry(MemoryStore(), rules=rules, order_by_key=True)
    async with producer_of(real.namesrv, retry) as producer:
        await producer.send(Message("Orders", b"a0", sharding_key="a"))
        real.refuse("a")
        first = await producer.send(Message("Orders", b"a1", sharding_key="a"))
        real.refuse("a", None)
        second = await producer.send(Message("Orders", b"a2", sharding_key="a"))
        other = await producer.send(Message("Orders", b"b0", sharding_key="b"))
        batch = await producer.send_batch(
            [Message("Orders", b"a3", sharding_key="a"), Message("Orders", b"b1", sharding_key="b")]
        )
        assert isinstance(first, StoredForRetry)
        assert isinstance(second, StoredForRetry)
        assert "an earlier message of its key waits" in str(second.error)
        assert [other.status, batch[1].status] == [SendStatus.SEND_OK] * 2
        assert isinstance(batch[0], StoredForRetry)
        retry.resend_now()
        await batch[0].delivered()
        last = await producer.send(Message("Orders", b"a4", sharding_key="a"))
        assert last.status is SendStatus.SEND_OK
        assert retry.keyed is not None
        assert len(retry.keyed) == 0
    got = [body for body, _ in await bodies(real.namesrv)]
    assert [body for body in got if body.startswith(b"a")] == [b"a0", b"a1", b"a2", b"a3", b"a4"]


@pytest.mark.parametrize("error", [RetryStoreFull("full"), RetryStoreUnreachable("away"), RetryStoreCorrupt("damaged")])
async def test_what_nobody_keeps_is_reported_with_both_reasons(real: RealCluster, error: Any) -> None:
    """The store is full, away or damaged: the caller learns that the message is not safe, with both reasons."""
    real.refuse("a")
    store = FaultyStore()
    store.write_error = error
    retry = DurableRetry(store)
    async with producer_of(real.namesrv, retry) as producer:
        with pytest.raises(NotSafe) as caught:
            await producer.send(Message("Orders", b"x"))
    assert caught.value.stored is Stored.NO
    assert caught.value.store_error is error
    assert len(caught.value.attempts) >= 2
    assert "NOT safe" in str(caught.value)
    assert "REJECTREQUEST" in str(caught.value)
    assert str(error) in str(caught.value)
    assert retry.not_safe_total == 1


async def test_a_store_that_hangs_is_reported_in_time(real: RealCluster) -> None:
    """The caller waits for the store for store_timeout_ms, and then learns that the result is unknown."""
    real.refuse("a")
    store = FaultyStore()
    retry = DurableRetry(store, store_timeout_ms=1000, rules=SOON)
    async with producer_of(real.namesrv, retry) as producer:
        store.hang.clear()
        with pytest.raises(NotSafe, match="did not answer"):
            await producer.send(Message("Orders", b"x"))
        store.hang.set()
        real.refuse("a", None)
        async with asyncio.timeout(60):
            while retry.delivered_total < 1:  # noqa: ASYNC110 - the store took it after all, and so it is resent
                await asyncio.sleep(0.01)
    assert [body for body, _ in await bodies(real.namesrv)] == [b"x"]


async def test_a_producer_works_without_its_store_and_says_so(real: RealCluster) -> None:
    """Successful sends need no store; the store comes back later; with order_by_key the start fails instead."""
    store = FaultyStore()
    store.open_error = RetryStoreUnreachable("away")
    retry = DurableRetry(store, reopen_ms=20)
    async with producer_of(real.namesrv, retry) as producer:
        assert (await producer.send(Message("Orders", b"1"))).status is SendStatus.SEND_OK
        real.refuse("a")
        with pytest.raises(NotSafe, match="away"):
            await producer.send(Message("Orders", b"2"))
        store.open_error = None
        async with asyncio.timeout(60):
            while not retry.state.open:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await producer.send(Message("Orders", b"3"))).status is SendStatus.STORED_FOR_RETRY
    store.open_error = RetryStoreUnreachable("away")
    strict = producer_of(real.namesrv, DurableRetry(store, order_by_key=True))
    with pytest.raises(RetryStoreUnreachable):
        await strict.start()
    with pytest.raises(NotStarted):
        await strict.send(Message("Orders", b"x"))


class Waits:
    """A store whose owner may be dead, a producer that starts on it, and the wait's reports."""

    def __init__(self, namesrv: str, **options: Any) -> None:
        self.store = FaultyStore()
        self.store.open_error = RetryStoreLocked("locked", owner="process 7", left_ms=60_000)
        self.told: asyncio.Queue[StoreWait] = asyncio.Queue()
        self.retry = DurableRetry(
            self.store, **{"on_store_wait": self.told.put_nowait, "reopen_ms": 3_600_000, **options}
        )
        self.producer = producer_of(namesrv, self.retry)
        self.start = asyncio.ensure_future(self.producer.start())


@pytest.mark.parametrize("options", [{"order_by_key": True}, {"required": True}])
async def test_a_start_that_needs_its_store_waits_for_the_end_of_a_dead_owner(real: RealCluster, options: Any) -> None:
    """It waits for as long as needed, beyond one call of the store; then it has its store."""
    waits = Waits(real.namesrv, **options)
    wait = await waits.told.get()
    assert (wait.store, wait.owner, wait.waited_ms) == ("faulty:", "process 7", 0)
    assert not waits.start.done()
    limit = waits.retry._start_limit
    assert limit is not None
    when = limit.when()
    assert when is not None
    assert when > asyncio.get_running_loop().time() + 40
    waits.store.open_error = None
    await waits.start
    assert waits.retry.state.open
    await waits.producer.stop()


async def test_a_start_that_needs_its_store_fails_when_the_owner_lives(real: RealCluster) -> None:
    """It fails as soon as the owner shows that it lives."""
    waits = Waits(real.namesrv, required=True)
    await waits.told.get()
    waits.store.open_error = error = RetryStoreLocked("it lives", owner="process 7")
    with pytest.raises(RetryStoreLocked) as caught:
        await waits.start
    assert caught.value is error


async def test_a_start_that_can_do_without_its_store_does_not_wait(real: RealCluster) -> None:
    """It starts without the store, and takes it when the owner's lease has ended, not at the next reopen_ms."""
    waits = Waits(real.namesrv)
    await waits.start
    assert not waits.retry.state.open
    real.refuse("a")
    with pytest.raises(NotSafe) as caught:
        await waits.producer.send(Message("Orders", b"x"))
    assert caught.value.store_error is waits.store.open_error
    waits.store.open_error = None
    async with asyncio.timeout(60):
        while not waits.retry.state.open:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await waits.producer.send(Message("Orders", b"y"))).status is SendStatus.STORED_FOR_RETRY
    await waits.producer.stop()


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_a_start_that_waits_can_be_ended(real: RealCluster, how: str) -> None:
    """A stop of the producer, or a cancellation, ends it; the store is closed."""
    waits = Waits(real.namesrv, required=True)
    await waits.told.get()
    if how == "stop":
        await waits.producer.stop()
        with pytest.raises(NotStarted, match="stopped while"):
            await waits.start
    else:
        waits.start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits.start
    assert waits.store.closed
    with pytest.raises(NotStarted):
        await waits.producer.send(Message("Orders", b"x"))


async def test_who_does_not_ask_finds_the_wait_in_the_log(real: RealCluster, caplog: pytest.LogCaptureFixture) -> None:
    """The log has a warning with the store, its owner and the times; a callback that raises adds an error."""

    def bad(wait: StoreWait) -> None:
        raise ValueError("bad callback")

    for callback in (None, bad):
        caplog.clear()
        waits = Waits(real.namesrv, required=True, on_store_wait=callback)
        async with asyncio.timeout(60):
            while "retry_store_waits" not in caplog.text and "bad callback" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        waits.store.open_error = None
        await waits.start
        await waits.producer.stop()
        assert ("store=faulty: owner=process 7 waited_ms=0 at_most_ms=62000" in caplog.text) is (callback is None)


async def test_what_cannot_be_helped_is_not_kept(cluster: Any) -> None:
    """A message that the broker refuses permanently, or that no rule keeps, gets the error of its send."""
    broker = await cluster.add("a")
    cluster.topics["Orders"] = cluster.topics["Audit"] = ["a"]
    broker.answers[RequestCode.NATIVE_APPEND] = lambda *_: (ResponseCode.MESSAGE_ILLEGAL, "no", None, b"")
    rules = (RetryRule(topics=("Audit*",), keep=False), RetryRule(kinds=("plain",)))
    retry = DurableRetry(MemoryStore(), rules=rules)
    async with producer_of(cluster.namesrv.address, retry, retry_times_when_send_failed=0) as producer:
        with pytest.raises(SendFailed, match="not retried") as caught:
            await producer.send(Message("Orders", b"x"))
        assert not isinstance(caught.value, NotSafe)
        broker.answers[RequestCode.NATIVE_APPEND] = broker.answers[RequestCode.SEND_MESSAGE_V2] = lambda *_: REFUSED
        for message in (Message("Audit", b"x"), Message("Orders", b"x", delay_time_level=3)):
            with pytest.raises(SendFailed) as caught:
                await producer.send(message)
            assert not isinstance(caught.value, NotSafe)
        producer.send_oneway(Message("Orders", b"x"))
        assert (await producer.send(Message("Orders", b"x"))).status is SendStatus.STORED_FOR_RETRY
        assert retry.state.waiting == 1


async def test_a_kept_message_outlives_credentials_that_are_refused(cluster: Any) -> None:
    """A secret that is renewed at the broker first refuses the client; its messages must not be given up for that."""
    server = await cluster.add("a")
    cluster.topics["Orders"] = ["a"]
    server.answers[NATIVE] = lambda *_: REFUSED
    retry = DurableRetry(MemoryStore(), rules=SOON)
    guard = ProofOfAlice(lies=True)
    async with producer_of(cluster.namesrv.address, retry, credentials=ALICE) as producer:
        receipt = await producer.send(Message("Orders", b"one"))
        assert isinstance(receipt, StoredForRetry)
        server._server.guard = guard
        for connection in list(server._server.connections):
            connection.close("for a new proof")
        await until(lambda: guard.proofs == 2)
        assert (retry.state.waiting, retry.given_up_total) == (1, 0)
        server.answers[NATIVE] = store
        guard.lies = False
        assert (await receipt.delivered()).status is SendStatus.SEND_OK


async def test_too_many_attempts_and_too_long_a_wait_give_up(real: RealCluster) -> None:
    """A given-up message stays in the store with its reason, or goes to ``on_given_up``; its receipt reports it."""
    real.refuse("a")
    taken: list[Any] = []

    def take(kept: Any, why: str) -> bool:
        taken.append((kept.body, why))
        return bool(kept.body == b"taken")

    rules = (RetryRule(attempts_max=2, backoff_ms_first=10, backoff_ms_max=10),)
    store = MemoryStore()
    retry = DurableRetry(store, rules=rules, on_given_up=take)
    async with producer_of(real.namesrv, retry) as producer:
        receipts = [await producer.send(Message("Orders", body)) for body in (b"taken", b"kept")]
        for receipt in receipts:
            assert isinstance(receipt, StoredForRetry)
            async with asyncio.timeout(60):
                with pytest.raises(GivenUpError, match="2 of 2 resends failed"):
                    await receipt.delivered()
        assert (retry.state.given_up, retry.given_up_total, retry.state.waiting) == (1, 2, 0)
    assert {body for body, _ in taken} == {b"taken", b"kept"}
    [(entry, why)] = store.given_up(0, 10)
    assert b"kept" in entry.payload
    assert "REJECTREQUEST" in why


async def test_one_bad_message_does_not_hold_up_the_rest(cluster: Any) -> None:
    """A section refused permanently is split: only the message at fault is given up."""
    broker = await cluster.add("a", native=0)
    cluster.topics["Orders"] = ["a"]
    seen: list[bytes] = []

    def answer(connection: Any, request: Any) -> Any:
        if not healthy:
            return REFUSED
        if b"bad" in bytes(request.body):
            return ResponseCode.MESSAGE_ILLEGAL, "bad", None, b""
        seen.append(bytes(request.body))
        return ResponseCode.SUCCESS, "", _stored(request), b""

    healthy = False
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        broker.answers[code] = answer
    retry = DurableRetry(MemoryStore(), rules=SOON)
    async with producer_of(cluster.namesrv.address, retry, retry_times_when_send_failed=0) as producer:
        receipts = [await producer.send(Message("Orders", body)) for body in (b"one", b"bad", b"two", b"three")]
        healthy = True
        async with asyncio.timeout(60):
            results = await asyncio.gather(
                *(each.delivered() for each in receipts if isinstance(each, StoredForRetry)), return_exceptions=True
            )
    assert [isinstance(result, GivenUpError) for result in results] == [False, True, False, False]
    assert retry.state.given_up == 1


def _stored(request: Any) -> Any:
    from pocketmq.remoting.protocol.send import SendMessageResponseHeader

    return SendMessageResponseHeader(msg_id="0" * 32, queue_id=0, queue_offset=0)


async def test_a_lost_answer_makes_a_duplicate_with_the_same_id(cluster: Any) -> None:
    """The receipt says that a duplicate is possible, and both copies carry the id of the receipt."""
    broker = await cluster.add("a", native=0)
    cluster.topics["Orders"] = ["a"]
    ids: list[str] = []
    silent = True

    def answer(connection: Any, request: Any) -> Any:
        ids.append(dict(each.split("\x01") for each in request.header.properties.split("\x02") if each)["UNIQ_KEY"])
        if silent:
            connection.close("the answer is lost")
            return None
        return ResponseCode.SUCCESS, "", _stored(request), b""

    broker.answers[RequestCode.SEND_MESSAGE_V2] = answer
    retry = DurableRetry(MemoryStore(), rules=SOON)
    async with producer_of(cluster.namesrv.address, retry, retry_times_when_send_failed=0) as producer:
        receipt = await producer.send(Message("Orders", b"x"))
        assert isinstance(receipt, StoredForRetry)
        assert receipt.duplicate_possible
        silent = False
        async with asyncio.timeout(60):
            await receipt.delivered()
    assert len(ids) >= 2
    assert set(ids) == {receipt.msg_id}


async def test_the_numbers_can_be_scraped(real: RealCluster) -> None:
    """The collector exports waiting messages and counts."""
    from prometheus_client import CollectorRegistry, generate_latest

    real.refuse("a")
    retry = DurableRetry(MemoryStore())
    registry = CollectorRegistry()
    async with producer_of(real.namesrv, retry) as producer:
        await producer.send(Message("Orders", b"x"))
        registry.register(retry.state)
        text = generate_latest(registry).decode()
    assert 'pocketmq_retry_waiting{store="memory:"} 1.0' in text
    assert 'pocketmq_retry_kept_total{store="memory:"} 1.0' in text
    assert 'pocketmq_retry_store_open{store="memory:"} 1.0' in text


async def test_a_retry_belongs_to_one_producer(real: RealCluster) -> None:
    """A second one is refused while the first runs."""
    retry = DurableRetry(MemoryStore())
    async with producer_of(real.namesrv, retry):
        with pytest.raises(ConfigError, match="another producer"):
            producer_of(real.namesrv, retry)


@pytest.mark.parametrize(
    "options", [{"count_max": 0}, {"bogus": 1}, {"rules": ("Orders",)}, {"lease_ms": 1.5}, {"resend_sections_max": 0}]
)
def test_a_bad_option_is_named(options: Any) -> None:
    """Unknown names, wrong types and values out of range stop the construction."""
    with pytest.raises(ConfigError, match=next(iter(options))):
        DurableRetry(MemoryStore(), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"kinds": ("transactional",)},
        {"topics": "Orders"},
        {"attempts_max": 0},
        {"backoff_ms_first": 9, "backoff_ms_max": 1},
    ],
)
def test_a_bad_rule_is_named(options: Any) -> None:
    """A half message can never be kept; limits make sense."""
    with pytest.raises(ConfigError, match="retry rule refused"):
        RetryRule(**options)


def test_the_blocking_face_has_it_too(broker: Any, topic: str) -> None:
    """Threads get the same receipt and wait for the delivery without an event loop."""
    retry = DurableRetry(MemoryStore(), rules=SOON)
    with blocking.Producer("g", namesrv="127.0.0.1:1", durable_retry=retry, send_msg_timeout_ms=200) as producer:
        receipt = producer.send(Message(topic, b"x"))
        assert isinstance(receipt, StoredForRetry)
        with pytest.raises(TimeoutError):
            receipt.wait_delivered(0.01)
    with pytest.raises(NotStarted):
        receipt.wait_delivered(1)


def test_the_former_name_of_resend_now_works_with_a_warning() -> None:
    """Programs that call it get the same result, and a warning with the new name."""
    with pytest.warns(DeprecationWarning, match="resend_now"):
        DurableRetry("memory:").hurry()


def test_one_durable_retry_belongs_to_one_producer() -> None:
    """A second one is refused when it is made: each would keep and resend the messages of the other."""
    retry = DurableRetry(MemoryStore())
    Producer("one", namesrv="127.0.0.1:1", durable_retry=retry)
    with pytest.raises(ConfigError, match="another producer uses it"):
        Producer("two", namesrv="127.0.0.1:1", durable_retry=retry)
