"""The broker as a whole: start, stop, faults and overload."""

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import VIP_PORT_STEP, BrokerConfig
from pocketmq.common.clock import ManualClock, SystemClock
from pocketmq.common.errors import ConfigError, CorruptRecord, PocketMQError
from pocketmq.common.logs import CapturedLog
from pocketmq.common.record_group import RecordGroup
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import AddressInUse
from pocketmq.remoting.protocol.send import SendMessageV2RequestHeader
from pocketmq.store.append_result import AppendResult
from pocketmq.store.config import StoreConfig
from pocketmq.store.errors import StoreInUse
from pocketmq.store.message_store import MessageStore
from tests.broker.conftest import Client, Harness, eventually, store_config
from tests.broker.raw_client import RawClient
from tests.broker.stalled_disk import StalledDisk


class StallingStore(MessageStore):
    """The real store, whose appends wait while the gate is shut."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.turnstile = threading.Event()
        self.turnstile.set()
        self.appends: list[int] = []

    def append(self, group: RecordGroup, *, dispatch_later: bool = False) -> AppendResult:
        self.appends.append(len(group))
        self.turnstile.wait(30)
        return super().append(group, dispatch_later=dispatch_later)


class FailingStore(MessageStore):
    """The real store, whose appends raise an error that no store should."""

    error: Exception | None = None

    def append(self, group: RecordGroup, *, dispatch_later: bool = False) -> AppendResult:
        if self.error is not None:
            raise self.error
        return super().append(group, dispatch_later=dispatch_later)


async def test_acknowledged_messages_are_there_after_a_restart(harness: Harness) -> None:
    """Stop and start again on the same store, same topics, same offsets."""
    app = await harness.broker()
    client = await harness.client(app)
    await client.put(*[b"%d" % n for n in range(100)])
    threads = threading.active_count()
    await app.stop()
    assert threading.active_count() < threads
    again = await harness.broker()
    client = await harness.client(again)
    assert await client.pull_bodies(wanted=100) == [b"%d" % n for n in range(100)]
    response = await client.put(b"next")
    assert response.header.results[0][1] == 100
    await again.stop()
    await again.stop()


async def test_a_stop_answers_everything_that_waits(harness: Harness) -> None:
    """Queued sends are served, held pulls end with 19, all others get the answer that the broker is stopping."""
    app = await harness.broker()
    client = await harness.client(app)
    await client.put(b"x")
    await eventually(lambda: app.store.max_offset("T", 0) == 1)
    held = asyncio.ensure_future(client.pull(offset=1, suspend_ms=15_000))
    await eventually(lambda: app.pulls_held)
    sends = [asyncio.ensure_future(client.send(body=b"%d" % n)) for n in range(50)]
    await asyncio.sleep(0)
    await app.stop()
    assert (await held).code == ResponseCode.PULL_NOT_FOUND
    codes = set()
    for send in sends:
        try:
            codes.add((await send).code)
        except PocketMQError:
            codes.add(-1)  # the connection closed before it was read
    assert codes <= {0, ResponseCode.SERVICE_NOT_AVAILABLE, -1}


async def test_a_port_in_use_and_a_store_in_use_are_typed_errors(
    harness: Harness, broker: BrokerApp, tmp_path: Path
) -> None:
    """A broker that cannot start leaves nothing behind, and the running one continues."""
    other = BrokerApp(BrokerConfig(listen_port=broker.port), store_config(tmp_path / "other"))
    with pytest.raises(AddressInUse, match=str(broker.port)):
        await other.start()
    assert not (tmp_path / "other").exists()
    threads = threading.active_count()
    same = BrokerApp(BrokerConfig(listen_port=0), store_config(tmp_path / "store"))
    with pytest.raises(StoreInUse):
        await same.start()
    assert same.port == 0
    await eventually(lambda: threading.active_count() <= threads)
    client = await harness.client(broker)
    await client.put(b"alive")


async def test_the_vip_channel_is_served_like_the_port(harness: Harness) -> None:
    """RocketMQ's Java clients up to 4.4 send to the port two below; it ends with the broker."""
    app = await with_vip_channel(harness)
    client = await harness.client(app)
    vip_address = f"127.0.0.1:{app.port - VIP_PORT_STEP}"
    vip = await Client(client.pool, vip_address).connect()
    assert (await vip.send(topic="T", body=b"by the VIP channel")).code == 0
    assert await client.pull_bodies() == [b"by the VIP channel"]
    await app.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(vip_address.rpartition(":")[2])), 5).close()


async def with_vip_channel(harness: Harness) -> BrokerApp:
    """Start a broker on a free port whose VIP port is free as well."""
    for _ in range(50):
        try:
            return await harness.broker(vip_channel="ON")
        except AddressInUse:
            continue
    raise AssertionError("no two free ports")


async def test_a_vip_port_in_use(harness: Harness) -> None:
    """By default the broker serves without it and says so; where the operator wants it, it does not start."""
    first = await with_vip_channel(harness)
    port = first.port
    await first.stop()
    with socket.create_server(("127.0.0.1", port - VIP_PORT_STEP)):
        with pytest.raises(AddressInUse, match=str(port - VIP_PORT_STEP)):
            await harness.broker(vip_channel="ON", listen_port=port)
        app = await harness.broker(listen_port=port)
        client = await harness.client(app)
        await client.put(b"served")
    [event] = [each for each in harness.log.events if each["event"] == "vip_channel_not_open"]
    assert event["port"] == port - VIP_PORT_STEP


@pytest.mark.parametrize(
    ("setting", "bind_address", "port", "wanted"),
    [
        ("LOOPBACK", "127.0.0.1", 10911, True),
        ("LOOPBACK", "localhost", 10911, True),
        ("LOOPBACK", "::1", 10911, True),
        ("LOOPBACK", "127.0.0.1", 0, False),
        ("LOOPBACK", "0.0.0.0", 10911, False),
        ("LOOPBACK", "10.0.0.1", 10911, False),
        ("ON", "0.0.0.0", 10911, True),
        ("OFF", "127.0.0.1", 10911, False),
    ],
)
def test_who_opens_a_vip_channel(setting: str, bind_address: str, port: int, wanted: bool) -> None:
    """Beyond loopback only a setting opens a second port; a port that the system chose has a neighbour by chance."""
    config = BrokerConfig(vip_channel=setting, bind_address=bind_address, listen_port=port)
    assert config.vip_channel_wanted is wanted


def test_bad_vip_settings() -> None:
    """The error names the setting."""
    with pytest.raises(ConfigError, match=r"broker\.vip_channel='YES'.*OFF, LOOPBACK, ON"):
        BrokerConfig(vip_channel="YES")
    with pytest.raises(ConfigError, match=r"broker\.listen_port=2 has no port 2 below"):
        BrokerConfig(vip_channel="ON", listen_port=2)


async def test_a_damaged_topics_file_stops_the_start(harness: Harness, tmp_path: Path) -> None:
    """An empty table must not replace it; moved away, the broker starts."""
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_bytes(b'{"topicConfigTable":')
    with pytest.raises(CorruptRecord, match=r"topics\.json"):
        await harness.broker()
    (config / "topics.json").unlink()
    app = await harness.broker()
    assert len(app.topics) > 5


async def test_topics_copied_from_another_broker_are_served(harness: Harness, tmp_path: Path) -> None:
    """A new broker needs only topics.json in RocketMQ's form."""
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    topic = {"topicName": "copied", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    content = {"topicConfigTable": {"copied": topic}, "dataVersion": {"timestamp": 1, "counter": 9}}
    (config / "topics.json").write_bytes(msgspec.json.encode(content))
    app = await harness.broker(auto_create_topic_enable=False)
    client = await harness.client(app)
    await client.put(b"x", topic="copied", queue_id=1)
    assert app.topics.get("TBW102") is None


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"listen_port": 70_000}, "listen_port"),
        ({"broker_name": ""}, "broker_name"),
        ({"broker_id": -1}, "broker_id"),
        ({"send_message_thread_pool_nums": 4}, "send_message_thread_pool_nums"),
        ({"send_thread_pool_queue_capacity": 0}, "send_thread_pool_queue_capacity"),
        ({"namesrv_addr": "nowhere"}, "namesrv_addr"),
        ({"namesrv_addr": "a:1;b:99999"}, "b:99999"),
        ({"bind_address": "0.0.0.0"}, "broker_ip1"),
        ({"broker_ip1": "example.org"}, "broker_ip1"),
    ],
)
def test_impossible_settings_are_refused_with_the_key(settings: dict[str, Any], text: str, tmp_path: Path) -> None:
    """Before anything is started."""
    with pytest.raises(ConfigError, match=text):
        BrokerApp(BrokerConfig(**settings), store_config(tmp_path))


async def test_a_flood_against_a_stalled_store_is_bounded_and_answered(harness: Harness, tmp_path: Path) -> None:
    """While an append hangs the queue fills up to its bound; further sends are refused at once with [OVERLOAD],
    other pairs and the loop go on; afterwards every request has had exactly one answer.
    """
    store = StallingStore(store_config(tmp_path / "store"))
    app = await harness.broker(store=store, send_thread_pool_queue_capacity=100)
    client = await harness.client(app)
    await client.put(b"first")
    store.turnstile.clear()
    executor = app.request_table.executor("SendMessageThread")
    sends = [asyncio.ensure_future(client.send(body=b"x" * 1000)) for _ in range(1)]
    await eventually(lambda: len(store.appends) == 2)
    sends += [asyncio.ensure_future(client.send(body=b"x" * 1000)) for _ in range(1000)]
    await eventually(lambda: executor.refused == 900)
    assert len(executor.queue) == 100
    assert executor.queue.size_bytes < 100 * 3000
    refused = [await send for send in sends[101:]]
    assert {response.code for response in refused} == {ResponseCode.SYSTEM_BUSY}
    assert {response.remark for response in refused} == {"[OVERLOAD]system busy, start flow control for a while"}
    assert refused[0].extra["cause"] == "queue_full"
    assert app.admission.refused == {"queue_full": 900}
    assert harness.log.of("too many requests and system thread pool busy, RejectedExecutionException")
    assert (await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).code == 0
    assert not any(send.done() for send in sends[:101])
    store.turnstile.set()
    assert {(await send).code for send in sends[:101]} == {0}
    assert len(await client.pull_bodies(wanted=102)) == 102


async def test_the_send_queue_is_bounded_in_bytes(harness: Harness, tmp_path: Path) -> None:
    """Large bodies reach the byte bound long before the count."""
    store = StallingStore(store_config(tmp_path / "store"))
    app = await harness.broker(store=store, send_queue_size_bytes_max=1 << 20)
    client = await harness.client(app)
    await client.put(b"first")
    store.turnstile.clear()
    executor = app.request_table.executor("SendMessageThread")
    first = asyncio.ensure_future(client.send(body=b"x"))
    await eventually(lambda: len(store.appends) == 2)
    sends = [asyncio.ensure_future(client.send(body=b"x" * 100_000)) for _ in range(30)]
    await eventually(lambda: executor.refused == 20)
    assert executor.queue.size_bytes <= 1 << 20
    store.turnstile.set()
    codes = [(await send).code for send in [first, *sends]]
    assert (codes.count(0), codes.count(2)) == (11, 20)


async def test_refused_oneway_sends_are_dropped_and_counted(harness: Harness, tmp_path: Path) -> None:
    """No answer, no memory."""
    store = StallingStore(store_config(tmp_path / "store"))
    app = await harness.broker(store=store, send_thread_pool_queue_capacity=1)
    client = await harness.client(app)
    await client.put(b"first")
    store.turnstile.clear()
    waiting = asyncio.ensure_future(client.send(body=b"x"))
    await eventually(lambda: len(store.appends) == 2)
    header = SendMessageV2RequestHeader("p", "T", "TBW102", 4, 0, 0, 0, 0)
    for _ in range(20):
        client.channel.send_oneway(RequestCode.SEND_MESSAGE_V2, header, b"oneway")
    await eventually(lambda: app.admission.oneway_dropped == 19)
    store.turnstile.set()
    assert (await waiting).code == 0


async def test_an_unexpected_error_of_the_store_answers_every_send_of_the_drain(
    harness: Harness, tmp_path: Path
) -> None:
    """SYSTEM_ERROR with the error's text and stored: unknown; the next send works."""
    store = FailingStore(store_config(tmp_path / "store"))
    app = await harness.broker(store=store)
    client = await harness.client(app)
    store.error = RuntimeError("the disk has left")
    answers = await asyncio.gather(client.send(), client.append(("T", 0, [client.record()])), client.send())
    assert {answer.code for answer in answers} == {ResponseCode.SYSTEM_ERROR}
    assert all("the disk has left" in answer.remark for answer in answers)
    assert {answer.extra["stored"] for answer in answers} == {"unknown"}
    assert harness.log.of("processor_failed")
    store.error = None
    await client.put(b"fine")


async def test_a_closed_log_is_refused_in_words(broker: BrokerApp, client: Client) -> None:
    """SERVICE_NOT_AVAILABLE, nothing stored, with a time to retry."""
    await client.put(b"x")
    broker.store.log.refuse()
    response = await client.send()
    assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert response.remark.startswith("service not available now")
    assert response.extra["stored"] == "no"
    assert int(response.extra["retry_after_ms"]) > 0


async def test_the_drain_of_a_slow_store_shrinks(harness: Harness, tmp_path: Path) -> None:
    """While appends are slow each takes fewer requests, so that the queue keeps requests that can still be refused."""
    store = StallingStore(store_config(tmp_path / "store"))
    clock = ManualClock()
    app = BrokerApp(
        BrokerConfig(listen_port=0, send_drain_max=16), store_config(tmp_path / "store"), store=store, clock=clock
    )
    await app.start()
    try:
        adaptive = app.request_table.executor("SendMessageThread").adaptive
        client = await harness.client(app)
        await client.put(b"first")
        assert adaptive.count == 16
        store.turnstile.clear()
        waiting = asyncio.ensure_future(client.send())
        await eventually(lambda: len(store.appends) == 2)
        clock.advance_ms(app.config.wait_time_mills_in_send_queue + 1)
        store.turnstile.set()
        assert (await waiting).code == 0
        await eventually(lambda: adaptive.count == 1)
    finally:
        await app.stop()


async def test_several_brokers_share_a_loop(harness: Harness) -> None:
    """Each has its own port, store and threads."""
    apps = [await harness.broker(name=f"store-{n}", broker_name=f"broker-{n}") for n in range(3)]
    assert len({app.port for app in apps}) == 3
    for n, app in enumerate(apps):
        client = await harness.client(app)
        await client.put(b"%d" % n)
        assert await client.pull_bodies() == [b"%d" % n]


async def test_the_host_family_is_announced_and_kept(harness: Harness, tmp_path: Path) -> None:
    """A broker on IPv6 takes records with IPv6 hosts and writes the peer's address into them."""
    try:
        app = await harness.broker(bind_address="::1")
    except PocketMQError:
        pytest.skip("no IPv6 on this machine")
    from pocketmq.common.record_codec import PlainRecordBuilder

    client = await harness.client(app)
    assert client.channel.announcement.family == 6
    client.builder = PlainRecordBuilder("DefaultCluster", 6)
    await client.put(b"six")
    response = await client.native_pull(("T", 0, 0), suspend_ms=5000)
    from tests.broker.conftest import records_of

    (record,) = records_of(response)
    assert (len(record.born_host), len(record.store_host)) == (20, 20)
    assert int.from_bytes(record.store_host[16:], "big") == app.port


def test_defaults_are_rocketmqs() -> None:
    """The values that operators know (docs/rocketmq.md, "Broker defaults")."""
    config = BrokerConfig()
    assert (config.listen_port, config.default_topic_queue_nums, config.send_thread_pool_queue_capacity) == (
        10911,
        8,
        10_000,
    )
    assert (config.wait_time_mills_in_send_queue, config.wait_time_mills_in_pull_queue) == (200, 5000)
    assert config.register_name_server_period == 30_000
    assert config.flush_consumer_offset_interval == 5000
    assert isinstance(StoreConfig(), StoreConfig)
    assert SystemClock().now_ms() > 0


@pytest.mark.parametrize(
    "settings",
    [
        {"wait_time_mills_in_send_queue": 1 << 31},
        {"shutdown_timeout_mills": 1 << 63},
        {"send_drain_max": 1 << 40},
        {"short_polling_time_mills": -5},
        {"channel_expired_timeout": 0},
    ],
)
def test_times_and_counts_beyond_a_java_int_or_below_one_are_refused(settings: dict[str, Any]) -> None:
    """They would never end, or end every client at once; the error names the setting."""
    with pytest.raises(ConfigError, match=rf"broker\.{next(iter(settings))}="):
        BrokerConfig(**settings)


@pytest.mark.slow
async def test_a_stop_that_waits_for_the_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append that hangs keeps the store open for as long as it hangs; the log has the reason and the remedy."""
    monkeypatch.setattr("pocketmq.broker.app.STOP_OVERDUE_S", 0.05)
    disk, log = StalledDisk(), CapturedLog()
    app = BrokerApp(
        BrokerConfig(listen_port=0, shutdown_timeout_mills=50), store_config(tmp_path / "s"), file_system=disk, log=log
    )
    await app.start()
    async with RawClient(app.port) as client:
        await client.answer(client.post_send())
        disk.shut()
        client.post_send()
        await eventually(lambda: disk.waiting > 0)
        stopping = asyncio.create_task(app.stop())
        try:
            await eventually(lambda: bool(log.of("stop_overdue")))
        finally:
            disk.open_gate()
        await stopping
    [event] = log.of("stop_overdue")
    assert "again" in event["hint"]
    assert event["uncommitted_bytes"] == 0
    assert "close" in event["stack"]
