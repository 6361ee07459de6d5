"""The busy answers, each through a real connection in all three codecs: RocketMQ's text and code, and the fields that
explain them.
"""

import contextlib
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.request_task import Refusal
from pocketmq.common.errors import Cause, ConfigError
from pocketmq.common.logs import CapturedLog
from pocketmq.common.record_group import RecordGroup
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import BINARY, JSON, MSGPACK
from pocketmq.remoting.protocol.send import ConsumerSendMsgBackRequestHeader, SendMessageV2RequestHeader
from pocketmq.remoting.protocol.transaction import EndTransactionRequestHeader
from pocketmq.remoting.server import ServerConfig
from pocketmq.store.append_result import AppendResult, PutStatus
from pocketmq.store.message_store import MessageStore
from tests.broker.conftest import eventually, store_config
from tests.broker.raw_client import RawClient
from tests.broker.stalled_disk import StalledDisk

CODECS = pytest.mark.parametrize("codec", [JSON, BINARY, MSGPACK], ids=["json", "binary", "msgpack"])
BUSY_MS = 100
BUSY_STORE = {"os_page_cache_busy_timeout_mills": BUSY_MS}
FOREVER_MS = 600_000
SWEPT = r"\]broker busy, start flow control for a while, period in queue: (\d+)ms, size of queue: (\d+)"
SEND_BACK = ConsumerSendMsgBackRequestHeader(0, "group", 1)
REJECT = "[REJECTREQUEST]system busy, start flow control for a while"


@pytest.fixture(autouse=True)
def expire_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expire requests at once, not after RocketMQ's first second."""
    monkeypatch.setattr("pocketmq.broker.flow_control.fast_failure.FIRST_AFTER_S", 0.0)


class Broker:
    """A broker on a disk that can stall."""

    def __init__(self, app: BrokerApp, disk: StalledDisk, log: CapturedLog) -> None:
        self.app = app
        self.disk = disk
        self.log = log

    async def stall(self, client: RawClient) -> int:
        """Stall the disk and let one send wait for it; return its opaque."""
        self.disk.shut()
        while True:
            opaque = client.post_send(b"stuck")
            await eventually(lambda: self.disk.waiting == 1 or opaque in client.answers)  # noqa: B023
            if opaque not in client.answers:
                return opaque

    def causes(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for count in self.app.refusals.snapshot():
            totals[count.cause] = totals.get(count.cause, 0) + count.total
        return totals


@contextlib.asynccontextmanager
async def broker(
    path: Path, *, store: Any = None, store_settings: Any = None, **settings: Any
) -> AsyncIterator[Broker]:
    disk, log = StalledDisk(), CapturedLog()
    app = BrokerApp(
        BrokerConfig(**{"listen_port": 0, **settings}),
        store_config(path / "store", **(store_settings or {})),
        store=store,
        file_system=disk,
        log=log,
    )
    await app.start()
    try:
        async with RawClient(app.port) as client:
            while (await client.answer(client.post_send(b"first"))).code != 0:  # the first one opens files
                pass
        yield Broker(app, disk, log)
    finally:
        disk.open_gate()
        await app.stop()


def explained(response: Response, cause: str, *stages: str) -> int:
    """Check the fields that explain a refusal, return its ``retry_after_ms``."""
    known = [part.partition("=") for part in response.extra.get("stages", "").split(",") if part]
    assert response.code == 2
    assert (response.extra["cause"], response.extra["stored"]) == (cause, "no")
    assert [name for name, _, _ in known] == list(stages)
    assert all(re.fullmatch(r"\d+\.\d\d", took_ms) for _, _, took_ms in known)
    return int(response.extra["retry_after_ms"])


@CODECS
async def test_reject_request_while_the_page_cache_is_busy(tmp_path: Path, codec: int) -> None:
    """Every kind of send is refused at admission, even send-backs; replies, pulls and transactions are not."""
    async with broker(tmp_path, store_settings=BUSY_STORE, broker_fast_failure_enable=False) as it:
        async with RawClient(it.app.port, codec) as client:
            stuck = await it.stall(client)
            await eventually(it.app.store.is_os_page_cache_busy)
            send = SendMessageV2RequestHeader("p", "T", "TBW102", 4, 0, 0, 0, 0)
            for code, header in (
                (RequestCode.SEND_MESSAGE_V2, send),
                (RequestCode.SEND_BATCH_MESSAGE, send),
                (RequestCode.CONSUMER_SEND_MSG_BACK, SEND_BACK),
            ):
                response = await client.answer(client.post(code, header, b"x"))
                assert response.remark == REJECT
                assert 100 <= explained(response, "page_cache_busy") <= 3000
            for code, other in (
                (RequestCode.SEND_REPLY_MESSAGE_V2, send),
                (RequestCode.END_TRANSACTION, EndTransactionRequestHeader("p", 0, 0, 8, "id")),
                (RequestCode.GET_BROKER_RUNTIME_INFO, None),
            ):
                response = await client.answer(client.post(code, other))
                assert "start flow control" not in response.remark
            client.post_send(b"oneway", oneway=True)
            await eventually(lambda: it.app.admission.oneway_dropped == 1)
            it.disk.open_gate()
            assert (await client.answer(stuck)).code == 0
            assert (await client.answer(client.post_send(b"again"))).code == 0
        assert it.app.admission.refused == {"page_cache_busy": 4}
        assert it.causes()["page_cache_busy"] == 4
        await eventually(lambda: it.app.store.max_offset("T", 0) == 3)
        assert it.log.of("refused_page_cache_busy")[0]["remark"] == REJECT


@CODECS
async def test_reject_request_without_a_free_write_buffer(tmp_path: Path, codec: int) -> None:
    """A pool of one buffer is empty once the log has its first segment: another cause, same text."""
    pool = {"transient_store_pool_enable": True, "transient_store_pool_size": 1, "commit_interval_commit_log": 123}
    app = BrokerApp(BrokerConfig(listen_port=0), store_config(tmp_path / "store", **pool), log=CapturedLog())
    await app.start()
    try:
        async with RawClient(app.port, codec) as client:
            responses = []

            async def refused() -> bool:
                responses.append(await client.answer(client.post_send()))
                return responses[-1].code != 0

            await eventually(refused)
        assert responses[-1].remark == REJECT
        assert explained(responses[-1], "no_write_buffer") == 123
    finally:
        await app.stop()


@CODECS
async def test_overload_when_the_queue_is_full(tmp_path: Path, codec: int) -> None:
    """The queue's bound is the limit, the rest is refused at once with RocketMQ's line in the log; oneways vanish."""
    async with broker(tmp_path, send_thread_pool_queue_capacity=3, broker_fast_failure_enable=False) as it:
        async with RawClient(it.app.port, codec) as client:
            stuck = await it.stall(client)
            queued = [client.post_send() for _ in range(3)]
            response = await client.answer(client.post_send())
            assert response.remark == "[OVERLOAD]system busy, start flow control for a while"
            assert explained(response, "queue_full") == 100
            client.post_send(oneway=True)
            await eventually(lambda: it.app.admission.oneway_dropped == 1)
            it.disk.open_gate()
            assert {(await client.answer(opaque)).code for opaque in (stuck, *queued)} == {0}
        assert it.app.admission.refused == {"queue_full": 2}
        line = "too many requests and system thread pool busy, RejectedExecutionException"
        (event,) = it.log.of(line)
        assert (event["pair"], event["queue_size"], event["request_code"]) == ("SendMessageThread", 3, 310)


@CODECS
async def test_timeout_clean_queue(tmp_path: Path, codec: int) -> None:
    """Requests beyond their maximum wait are answered while the append still hangs, with wait and queue size."""
    async with broker(tmp_path, wait_time_mills_in_send_queue=100) as it, RawClient(it.app.port, codec) as client:
        stuck = await it.stall(client)
        queued = [client.post_send() for _ in range(3)]
        sizes = []
        for opaque in queued:
            response = await client.answer(opaque)
            words = re.fullmatch(r"\[TIMEOUT_CLEAN_QUEUE" + SWEPT, response.remark)
            assert words is not None, response.remark
            assert int(words[1]) >= 100
            assert float(response.extra["stages"].removeprefix("queue_wait=")) >= 100
            sizes.append(int(words[2]))
            assert explained(response, "queue_timeout", "queue_wait") == 100
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[-1] == 0
        assert stuck not in client.answers
        it.disk.open_gate()
        assert (await client.answer(stuck)).code == 0
        assert it.causes()["queue_timeout"] >= 3
        await eventually(lambda: it.app.store.max_offset("T", 0) == 2)


@CODECS
async def test_pcbusy_clean_queue(tmp_path: Path, codec: int) -> None:
    """Once the holder of the append lock passes the limit the whole queue is emptied, long before its own limit."""
    settings = {"store_settings": BUSY_STORE, "wait_time_mills_in_send_queue": FOREVER_MS}
    async with broker(tmp_path, **settings) as it, RawClient(it.app.port, codec) as client:
        stuck = await it.stall(client)
        queued = [client.post_send() for _ in range(5)]
        for left, opaque in enumerate(reversed(queued)):
            response = await client.answer(opaque)
            words = re.fullmatch(r"\[PCBUSY_CLEAN_QUEUE" + SWEPT, response.remark)
            assert words is not None, response.remark
            assert int(words[2]) == left
            assert 100 <= explained(response, "page_cache_busy", "queue_wait") <= 3000
        it.disk.open_gate()
        assert (await client.answer(stuck)).code == 0
        assert it.causes()["page_cache_busy"] >= 5


@CODECS
async def test_pc_synchronized_in_the_put(tmp_path: Path, codec: int) -> None:
    """A drain that waits for the lock gives up when its holder passes the limit: SYSTEM_BUSY as in 5.3, with stages."""
    slower = {"os_page_cache_busy_timeout_mills": 3 * BUSY_MS}
    settings = {"store_settings": slower, "broker_fast_failure_enable": False, "send_message_thread_pool_nums": 2}
    async with broker(tmp_path, **settings) as it, RawClient(it.app.port, codec) as client:
        stuck = await it.stall(client)
        response = await client.answer(client.post_send(b"second"))
        assert response.remark == "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
        assert explained(response, "page_cache_busy", "queue_wait", "lock_wait") >= 100
        it.disk.open_gate()
        assert (await client.answer(stuck)).code == 0
        await eventually(lambda: it.app.store.max_offset("T", 0) == 2)


class StatusStore(MessageStore):
    """The real store, with append results set by the test."""

    result: AppendResult | None = None

    def append(self, group: RecordGroup, *, dispatch_later: bool = False) -> AppendResult:
        return self.result or super().append(group, dispatch_later=dispatch_later)


@CODECS
async def test_every_other_put_status_has_rocketmqs_code_and_text(tmp_path: Path, codec: int) -> None:
    """Messages that are not stored are refused, with the store's own text where RocketMQ has none."""
    store = StatusStore(store_config(tmp_path / "store"))
    expected = {
        PutStatus.CREATE_MAPEDFILE_FAILED: (1, "create mapped file failed, server is busy or broken."),
        PutStatus.SERVICE_NOT_AVAILABLE: (14, "service not available now: why not"),
        PutStatus.MESSAGE_ILLEGAL: (13, "why not"),
        PutStatus.PROPERTIES_SIZE_EXCEEDED: (13, "why not"),
        PutStatus.OS_PAGE_CACHE_BUSY: (2, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"),
        PutStatus.UNKNOWN_ERROR: (1, "why not"),
    }
    assert set(expected) == {status for status in PutStatus if not status.is_stored}
    async with broker(tmp_path, store=store) as it, RawClient(it.app.port, codec) as client:
        for status, answer in expected.items():
            store.result = AppendResult(status, error="why not", lock_wait_ns=1_500_000, append_ns=2_250_000)
            response = await client.answer(client.post_send())
            assert (response.code, response.remark) == answer
            assert response.extra["stored"] == "no"
            assert response.extra["cause"] in {cause.value for cause in Cause}
            assert int(response.extra["retry_after_ms"]) > 0
            assert re.fullmatch(r"queue_wait=\d+\.\d\d,lock_wait=1\.50,append=2\.25", response.extra["stages"])


@CODECS
async def test_send_backs_wait_with_the_sends(tmp_path: Path, codec: int) -> None:
    """Code 36 uses the send pair's queue: it waits behind a stalled send, and is answered after it."""
    async with broker(tmp_path) as it, RawClient(it.app.port, codec) as client:
        assert it.app.request_table.pair_for(36).name == "SendMessageThread"
        stuck = await it.stall(client)
        behind = client.post(RequestCode.CONSUMER_SEND_MSG_BACK, SEND_BACK)
        await eventually(lambda: len(it.app.request_table.executor("SendMessageThread").queue) == 1)
        it.disk.open_gate()
        response = await client.answer(behind)
        assert (response.code, response.remark) in ((0, ""), (1, "look message by offset failed, 0"))
        assert (await client.answer(stuck)).code == 0


async def test_a_slave_takes_no_sends(tmp_path: Path) -> None:
    """RocketMQ 5.3 refuses them at admission."""
    store = store_config(tmp_path / "store", broker_role="SLAVE")
    with pytest.raises(ConfigError, match=r"SLAVE.*broker_id=0"):
        BrokerApp(BrokerConfig(listen_port=0), store)
    with pytest.raises(ConfigError, match=r"ASYNC_MASTER.*broker_id=1"):
        BrokerApp(BrokerConfig(listen_port=0, broker_id=1), store_config(tmp_path / "master"))
    app = BrokerApp(BrokerConfig(listen_port=0, broker_id=1), store)
    await app.start()
    try:
        async with RawClient(app.port) as client:
            response = await client.answer(client.post_send())
            assert response.remark == REJECT
            assert explained(response, "not_master") == 1000
    finally:
        await app.stop()


async def test_the_thread_dump_shows_the_stuck_store(tmp_path: Path) -> None:
    """While a stall causes refusals, one event shows each thread's place; the send thread is in the segment's store."""
    async with broker(tmp_path, store_settings=BUSY_STORE) as it, RawClient(it.app.port) as client:
        stuck = await it.stall(client)
        await eventually(it.app.store.is_os_page_cache_busy)
        await client.answer(client.post_send())
        await eventually(lambda: it.log.of("thread_dump"))
        it.disk.open_gate()
        await client.answer(stuck)
        (event,) = it.log.of("thread_dump")
        assert event["cause"] == "page_cache_busy"
        assert "_hook (broker/stalled_disk.py:" in event["thread_SendMessageThread"]
        assert "append (commitlog/commit_log.py:" in event["thread_SendMessageThread"]
        assert "thread_MainThread" in event


async def test_a_topics_file_that_cannot_be_written_refuses_the_send_and_later_ones(tmp_path: Path) -> None:
    """No acknowledgement for a topic that a crash would lose, however often the client tries; then it works."""
    async with broker(tmp_path) as it, RawClient(it.app.port) as client:
        it.disk.full_at = "topics.json"
        for _ in range(2):
            response = await client.answer(client.post_send(topic="new"))
            assert (response.code != 0, response.extra["stored"]) == (True, "no")
            assert response.extra["stages"].startswith("queue_wait=")
        it.disk.full_at = ""
        assert (await client.answer(client.post_send(topic="new"))).code == 0
        await eventually(lambda: it.app.store.max_offset("new", 0) == 1)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"wait_time_mills_in_send_queue": 0}, "wait_time_mills_in_send_queue=0.*fast_failure_enable"),
        ({"wait_time_mills_in_pull_queue": -1}, "wait_time_mills_in_pull_queue"),
        ({"wait_time_mills_in_heartbeat_queue": 0}, "wait_time_mills_in_heartbeat_queue"),
        ({"wait_time_mills_in_transaction_queue": 0}, "wait_time_mills_in_transaction_queue"),
        ({"send_drain_max": 0}, "send_drain_max"),
        ({"send_drain_size_bytes_max": 0}, "send_drain_size_bytes_max"),
        ({"send_queue_size_bytes_max": 0}, "send_queue_size_bytes_max"),
        ({"send_message_thread_pool_nums": 3}, "send_message_thread_pool_nums"),
    ],
)
def test_impossible_limits_are_refused_with_the_key(settings: dict[str, Any], text: str) -> None:
    """Before the broker starts; a wait above every client's timeout is allowed, as in RocketMQ."""
    with pytest.raises(ConfigError, match=text):
        BrokerConfig(**settings)
    assert BrokerConfig(wait_time_mills_in_send_queue=60_000).wait_time_mills_in_send_queue == 60_000


def test_stages_are_left_out_where_none_is_known() -> None:
    """A key without a value would be read as a stage without a name."""
    refusal = Refusal(2, "x", Cause.QUEUE_FULL)
    assert "stages" not in refusal.extra()
    assert refusal.with_stages((("queue_wait", 203_514_000), ("lock_wait", 0))).extra()["stages"] == (
        "queue_wait=203.51,lock_wait=0.00"
    )


async def test_connections_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    """They are closed before their first request; the broker's counts still show them."""
    log = CapturedLog()
    app = BrokerApp(
        BrokerConfig(listen_port=0),
        store_config(tmp_path / "store"),
        server_config=ServerConfig(connections_max=1),
        log=log,
    )
    await app.start()
    try:
        async with RawClient(app.port) as first:
            assert (await first.answer(first.post(RequestCode.GET_ALL_TOPIC_CONFIG))).code == 0
            async with RawClient(app.port), RawClient(app.port):
                await eventually(lambda: [count.total for count in app.refusals.snapshot()] == [2])
        (count,) = app.refusals.snapshot()
        assert (count.cause, count.last_minute) == ("connection_limit", 2)
        assert log.of("refused_connection_limit")
    finally:
        await app.stop()


@pytest.mark.slow
async def test_a_client_that_ignores_refusals_cannot_grow_the_broker(tmp_path: Path) -> None:
    """20,000 sends without a pause against a stalled store: the broker's memory stays within its bounds, all of the
    time, and every request has one answer."""
    capacity = 200
    settings = {"send_thread_pool_queue_capacity": capacity, "wait_time_mills_in_send_queue": 30}
    async with broker(tmp_path, **settings) as it:
        executor = it.app.request_table.executor("SendMessageThread")
        largest, done = 0, threading.Event()

        def watch() -> None:
            nonlocal largest
            while not done.wait(0.0005):
                largest = max(largest, len(executor.queue))

        watcher = threading.Thread(target=watch)
        watcher.start()
        async with RawClient(it.app.port) as client:
            stuck = await it.stall(client)
            opaques = []
            for _ in range(200):
                opaques += [client.post_send(b"x" * 100) for _ in range(100)]
                await client.drain()
            for opaque in opaques:
                assert (await client.answer(opaque)).code == 2
            it.disk.open_gate()
            assert (await client.answer(stuck)).code == 0
        done.set()
        watcher.join()
        assert 0 < largest <= capacity
        causes = it.causes()
        assert set(causes) <= {"queue_full", "queue_timeout", "page_cache_busy"}
        assert sum(causes.values()) >= 20_000
        assert len(it.log.of("refused_queue_full")) < 1000
        await eventually(lambda: it.app.store.max_offset("T", 0) == 2)


@pytest.mark.parametrize(("size", "warned"), [(1, True), (2, True), (3, False)])
async def test_a_pool_that_can_never_have_a_free_buffer_is_reported(tmp_path: Path, size: int, warned: bool) -> None:
    """RocketMQ allows it, and so do we; but endless refusals should not be the only sign of it."""
    log = CapturedLog()
    store = store_config(tmp_path / "store", transient_store_pool_enable=True, transient_store_pool_size=size)
    app = BrokerApp(BrokerConfig(listen_port=0), store, log=log)
    await app.start()
    await app.stop()
    assert bool(log.of("write_buffer_pool_too_small")) == warned
