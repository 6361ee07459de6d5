"""UPDATE_BROKER_CONFIG at a running broker: it takes effect, is shown, and holds over a start."""

import asyncio
import io
import threading
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.client import Admin, Message, Producer
from pocketmq.common.errors import PocketMQError
from pocketmq.common.logs import LogConfig, Logs
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.codes import RequestCode as R
from pocketmq.remoting.protocol.spec import Pool
from pocketmq.store.errors import DiskError
from tests.broker.conftest import Harness, eventually, store_config
from tests.store.log_fakes import HookedFileSystem


async def change(client: Any, **settings: object) -> Any:
    body = "".join(f"{name}={value}\n" for name, value in settings.items()).encode()
    return await client.ask(R.UPDATE_BROKER_CONFIG, None, body)


async def shown(client: Any) -> dict[str, str]:
    body = bytes((await client.ask(R.GET_BROKER_CONFIG)).body).decode()
    return dict(line.split("=", 1) for line in body.splitlines())


async def test_a_change_takes_effect_and_is_shown(broker: BrokerApp, client: Any) -> None:
    components, table = broker.store.components, broker.request_table
    answer = await change(
        client,
        waitTimeMillsInSendQueue=1234,
        flushIntervalCommitLog=77,
        fileReservedTime=1,
        deleteWhen="03;05",
        osPageCacheBusyTimeOutMills=4321,
        diskFreeBytesMin=12345,
    )
    assert answer.code == 0, answer.remark
    assert table.executor("SendMessageThread").max_wait_ms == 1234
    assert table.executor("SendMessageThread").adaptive.slow_ns == 1_234_000_000
    assert components.flush._interval_ns == 77_000_000
    assert components.retention._reserved_ms == 3_600_000
    assert components.retention._hours == {3, 5}
    assert components.retention.limits.free_bytes_min == components.allocator._limits.free_bytes_min == 12345
    assert components.log.lock._limit_ns == 4_321_000_000
    now = await shown(client)
    assert (now["waitTimeMillsInSendQueue"], now["fileReservedTime"], now["deleteWhen"]) == ("1234", "1", "03;05")


async def test_a_broker_that_is_made_read_only_refuses_sends_on_every_path(client: Any) -> None:
    await client.put(b"before")
    assert (await change(client, brokerPermission=4)).code == 0
    refused = await client.append(("T", 0, [client.record("T", b"after")]))
    assert refused.code != 0
    assert "sending message is forbidden" in refused.remark
    assert (await change(client, brokerPermission=6)).code == 0
    await client.put(b"again")
    assert await client.pull_bodies(wanted=2) == [b"before", b"again"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"fileReservedTime=1\nbrokerName=x\n", "broker.broker_name is read at the start of a broker only"),
        (b"fileReservedTime=\n", "file_reserved_time"),
        (b"", "the body has 0 settings"),
        (b"\xff=1", "not UTF-8"),
        (b"namesrvAddr=\\u12", "line 1"),
        (b"fileReservedTime=1\nwarmMapedFileEnable=true", "warm_maped_file_enable is read at the start"),
        (b"fileReservedTime=1\nbrokerPermission=8", "broker_permission=8"),
        (b"brokerPermission=-1", "broker_permission=-1"),
        (b"brokerPermission=99999999999999999999999", "broker_permission=99999999999999999999999"),
        (b"transactionTimeOut=99999999999999999999999", "at most 2147483647"),
        (b"transactionCheckInterval=0", "at least 1"),
        (b"diskSpaceWarningLevelRatio=nan", "not a whole number"),
        (b"fileReservedTime=[1]", "not a whole number"),
    ],
)
async def test_what_is_refused_changes_nothing(body: bytes, why: str, broker: BrokerApp, client: Any) -> None:
    before = await shown(client)
    refused = await client.ask(R.UPDATE_BROKER_CONFIG, None, body)
    assert refused.code != 0
    assert why in refused.remark
    assert await shown(client) == before


async def test_it_holds_over_a_start(harness: Harness) -> None:
    app = await harness.broker()
    client = await harness.client(app)
    assert (await change(client, autoCreateTopicEnable="false", fileReservedTime=9)).code == 0
    await app.stop()
    again = await harness.broker()
    assert again.store.config.file_reserved_time == 9
    now = await shown(await harness.client(again))
    assert now["autoCreateTopicEnable"] == "false"
    sender = await harness.client(again)
    refused = await sender.append(("New", 0, [sender.record("New")]))
    assert refused.code != 0


async def test_levels_of_the_log_change_for_loggers_that_are_there(tmp_path: Path, harness: Harness) -> None:
    written = io.StringIO()
    logs = Logs(LogConfig(level="warning"), stream=written)
    app = BrokerApp(BrokerConfig(listen_port=0), store_config(tmp_path / "s"), loggers=logs.logger, logs=logs)
    await app.start()
    try:
        log = logs.logger("store")
        log.info("silent")
        client = await harness.client(app)
        assert (await change(client, **{"log.levels": "store=debug"})).code == 0
        log.debug("loud")
        logs.logger("ha").info("silent_too")
        assert (await change(client, **{"log.level": "error", "log.levels": ""})).code == 0
        log.warning("silent_again")
        assert (await change(client, **{"log.level": "everything"})).code != 0
    finally:
        await app.stop()
        logs.close()
    assert "loud" in written.getvalue()
    assert "silent" not in written.getvalue()


async def test_clients_learn_the_permission_from_the_route(tmp_path: Path) -> None:
    """Producers stop choosing the broker: its queues are no longer for writing (RocketMQ registers again, too)."""
    namesrv = NamesrvApp(NamesrvConfig(listen_port=0))
    await namesrv.start()
    app = BrokerApp(BrokerConfig(listen_port=0, namesrv_addr=namesrv.address), store_config(tmp_path / "s"))
    await app.start()
    try:
        async with Admin(namesrv.address) as admin, Producer("p", namesrv=namesrv.address) as producer:
            await admin.create_topic("T", queues=1)
            await producer.send(Message("T", b"x"))
            await admin.change_broker_settings(app.address, {"broker_permission": "4"})
            assert (await admin.broker_settings(app.address))["brokerPermission"] == "4"

            async def perm() -> Any:
                route = await admin.instance.name_servers.route("T", timeout_ms=60_000)
                return [each.perm for each in route.queue_datas] == [4]

            await eventually(perm)
            with pytest.raises(PocketMQError, match="read at the start"):
                await admin.change_broker_settings(app.address, {"listen_port": "1"})
    finally:
        await app.stop()
        await namesrv.stop()


async def test_topics_are_created_once_that_is_allowed(harness: Harness) -> None:
    """The topic that new ones are made like is there, too, and clients find it in the routes."""
    app = await harness.broker(auto_create_topic_enable=False)
    client = await harness.client(app)
    assert (await client.append(("New", 0, [client.record("New", b"1")]))).code != 0
    assert (await change(client, autoCreateTopicEnable="true")).code == 0
    answer = await client.append(("New", 0, [client.record("New", b"1")]))
    assert answer.code == 0, answer.remark
    assert (await change(client, autoCreateTopicEnable="false")).code == 0
    assert (await client.append(("Newer", 0, [client.record("Newer", b"1")]))).code != 0


async def test_a_change_that_could_not_be_written_is_written_when_it_is_sent_again(harness: Harness) -> None:
    disk = HookedFileSystem()
    app = await harness.broker(file_system=disk)
    client = await harness.client(app)

    def fail(operation: str, path: str) -> None:
        if "changedSettings" in path:
            raise DiskError("no write", why="test")

    disk.hook = fail
    answer = await change(client, fileReservedTime=9)
    assert answer.code != 0
    assert "settings changed, and not written: they hold until the broker stops" in answer.remark
    assert app.store.config.file_reserved_time == 9
    assert (await change(client, fileReservedTime=9)).code != 0, "it is in force, and still not written"
    disk.hook = None
    assert (await change(client, fileReservedTime=9)).code == 0
    await app.stop()
    assert (await harness.broker()).store.config.file_reserved_time == 9


async def test_a_change_that_waits_for_the_disk_while_the_broker_stops(harness: Harness) -> None:
    """The one that is being written is kept, and so is the one behind it."""
    disk, begun, may_go_on = HookedFileSystem(), threading.Event(), threading.Event()
    app = await harness.broker(file_system=disk)
    client, other = await harness.client(app), await harness.client(app)

    def hang(operation: str, path: str) -> None:
        if "changedSettings" in path:
            begun.set()
            assert may_go_on.wait(60)

    disk.hook = hang
    first = asyncio.create_task(change(client, fileReservedTime=9))
    await eventually(begun.is_set)
    assert (await shown(other))["fileReservedTime"] == "9", "questions are answered meanwhile"
    second = asyncio.create_task(change(other, fileReservedTime=8))
    await eventually(lambda: len(app.request_table.executor(Pool.ADMIN.value).queue))
    stop = asyncio.create_task(app.stop())
    await eventually(lambda: app._running is None)
    may_go_on.set()
    await stop
    assert ((await first).code, (await second).code) == (0, 0)
    assert (await harness.broker()).store.config.file_reserved_time == 8


async def test_what_a_start_forgets_does_not_come_back(harness: Harness) -> None:
    app = await harness.broker()
    assert (await change(await harness.client(app), fileReservedTime=9)).code == 0
    await app.stop()
    edited = await harness.broker(store_settings={"file_reserved_time": 24})
    assert edited.store.config.file_reserved_time == 24
    await edited.stop()
    assert (await harness.broker()).store.config.file_reserved_time == 72


async def test_settings_of_the_caller_do_not_change(harness: Harness, tmp_path: Path) -> None:
    """Two brokers of one process may be given the same ones."""
    config, store = BrokerConfig(listen_port=0), store_config(tmp_path / "s")
    app = BrokerApp(config, store)
    await app.start()
    try:
        assert (await change(await harness.client(app), fileReservedTime=9, brokerPermission=4)).code == 0
    finally:
        await app.stop()
    assert (config.broker_permission, store.file_reserved_time) == (6, 72)
