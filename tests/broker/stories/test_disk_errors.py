"""A real broker on a disk that fails by rule: the answers to producers and consumers, and the state afterwards."""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.housekeeping import Housekeeping
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import CorruptRecord, PocketMQError
from pocketmq.common.logs import CapturedLog
from pocketmq.common.record import TRANSACTION_COMMIT
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.pull import ViewMessageRequestHeader
from pocketmq.remoting.protocol.staged import StagedEndRequestHeader
from pocketmq.remoting.protocol.transaction import NativeEndTransactionRequestHeader
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.errors import StoreFull
from pocketmq.testing.faults import FaultFileSystem, FaultPlan
from tests.broker.conftest import Client, Harness, eventually, records_of, store_config
from tests.broker.stories.test_transactions import end, half

WRITES = ["write_at", "reserve", "resize", "zero", "rename", "replace"]
LOG_SYNC = {"operations": ["sync"], "path": "commitlog/*"}


class SickBroker:
    """A broker, its rules and one client; it can be started again."""

    def __init__(self, harness: Harness, path: Path, **store_settings: Any) -> None:
        self._harness = harness
        self._control = path / "faults.json"
        self._config = store_config(path / "store", **{"mapped_file_size_commit_log": 65_536, **store_settings})
        self.log = CapturedLog()
        self.plan = FaultPlan(OsFileSystem(), str(self._control), str(path / "store"), SystemClock(), self.log)
        self.app: BrokerApp
        self.client: Client
        self.acknowledged: list[bytes] = []

    async def start(self) -> "SickBroker":
        self.app = BrokerApp(
            BrokerConfig(listen_port=0, broker_name="broker-a"),
            self._config,
            file_system=FaultFileSystem(OsFileSystem(), self.plan),
            log=self.log,
        )
        await self.app.start()
        self._harness._stack.push_async_callback(self.stop)
        self.client = await self._harness.client(self.app)
        return self

    async def stop(self) -> None:
        self.rules()
        with contextlib.suppress(PocketMQError):
            await self.app.stop()

    def rules(self, *rules: dict[str, Any]) -> None:
        """Put these rules in force."""
        self._control.write_text(json.dumps({"rules": rules}))
        self.plan._read_ns = 0
        self.plan._reload_if_due()

    async def put(self, body: bytes) -> Any:
        """Send one message; note it if it was acknowledged."""
        response = await self.client.send(body=body)
        if response.code == 0:
            self.acknowledged.append(body)
        return response

    async def read(self) -> list[bytes]:
        """Return the messages that a consumer gets from the first offset on."""
        store = self.app.store
        store.show_all()
        found: list[bytes] = []
        offset = store.min_offset("T", 0)
        while offset < store.max_offset("T", 0):
            response = await self.client.native_pull(("T", 0, offset))
            assert response.code == 0, response
            found += [record.body for record in records_of(response)]
            offset = response.header.results[0][1]
        return found

    def keeper(self) -> Housekeeping:
        """Return the component that writes the tables."""
        assert self.app._running is not None
        return self.app._running.housekeeping

    def health(self) -> list[str]:
        return self.app.observation.health.report().reasons


def refusal_of(response: Any) -> tuple[int, str, str]:
    return response.code, response.extra["cause"], response.extra["stored"]


async def test_a_failed_sync_is_told_to_everybody(harness: Harness, tmp_path: Path) -> None:
    """Waiting sends learn that the result is unknown, later ones that they are not stored; reads continue, /health
    shows the fault, and a restart has all acknowledged messages.
    """
    sick = await SickBroker(harness, tmp_path, flush_disk_type="SYNC_FLUSH").start()
    for number in range(3):
        assert (await sick.put(b"%d" % number)).code == 0
    sick.rules({**LOG_SYNC, "error": "EIO", "count": 1})
    waited = await sick.put(b"nobody knows")
    assert refusal_of(waited) == (14, "fenced", "unknown")
    assert "a sync failed" in waited.remark
    later = await sick.put(b"not stored")
    assert refusal_of(later) == (14, "fenced", "no")
    assert "restart the broker" in later.remark
    assert int(later.extra["retry_after_ms"]) > 0
    assert sick.health() == ["log_fenced"]
    assert (await sick.read())[:3] == sick.acknowledged
    assert [event["event"] for event in sick.log.events].count("log_fenced") == 1
    await sick.stop()
    again = await sick.start()
    found = await again.read()
    assert found[:3] == sick.acknowledged
    assert found[3:] in ([], [b"nobody knows"])
    assert (await again.put(b"goes on")).code == 0
    assert again.health() == []


async def test_a_failed_sync_is_the_same_refusal_for_every_request_that_waits(harness: Harness, tmp_path: Path) -> None:
    """A send, a decision, several decisions in one request and a staged transaction get one code, cause and text."""
    sick = await SickBroker(harness, tmp_path, flush_disk_type="SYNC_FLUSH").start()
    first, *others = [await half(sick.client, body) for body in (b"first", b"second", b"third")]
    native = NativeEndTransactionRequestHeader(
        "producers", [(place[0], place[1], TRANSACTION_COMMIT, False) for place in others]
    )
    add_brokers = StagedEndRequestHeader("producers", "daily", 1, 4, [], brokers=["broker-a"])
    waiting: dict[str, Callable[[], Any]] = {
        "send": lambda: sick.put(b"nobody knows"),
        "decision": lambda: end(sick.client, first, TRANSACTION_COMMIT),
        "decisions": lambda: sick.client.ask(RequestCode.NATIVE_END_TRANSACTION, native),
        "staged": lambda: sick.client.ask(RequestCode.STAGED_TRANSACTION_END, add_brokers),
    }
    answers = {}
    for name, ask in waiting.items():
        sick.rules({**LOG_SYNC, "error": "EIO"})
        answers[name] = await ask()
        await sick.stop()
        await sick.start()
    several = answers.pop("decisions").header.results
    assert {refusal_of(answer) for answer in answers.values()} == {(14, "fenced", "unknown")}
    assert {code for code, _ in several} == {14}
    remarks = [answer.remark for answer in answers.values()] + [remark for _, remark in several]
    assert {remark.partition(": a sync failed: ")[0] for remark in remarks} == {"service not available now"}


async def test_a_full_disk_refuses_until_there_is_space(harness: Harness, tmp_path: Path) -> None:
    """Sends are refused with the cause until there is space again, consumers continue: no message is lost or
    there twice.
    """
    sick = await SickBroker(harness, tmp_path).start()
    sick.rules({"operations": WRITES, "error": "ENOSPC"})
    refused = []
    for number in range(100):
        response = await sick.put(b"%03d" % number + bytes(4000))
        if response.code:
            refused.append(refusal_of(response))
    assert set(refused) == {(14, "disk_full", "no")}
    assert await sick.read() == sick.acknowledged
    sick.rules()
    for number in range(100, 120):
        assert (await sick.put(b"%03d" % number + bytes(4000))).code == 0
    assert await sick.read() == sick.acknowledged
    await sick.stop()
    assert await (await sick.start()).read() == sick.acknowledged


async def test_a_new_topic_on_a_full_disk_is_refused(harness: Harness, tmp_path: Path) -> None:
    """Its table cannot be written, so no message to it is acknowledged; with space it is."""
    sick = await SickBroker(harness, tmp_path).start()
    assert (await sick.put(b"there")).code == 0
    sick.rules({"operations": ["replace"], "path": "config/*", "error": "ENOSPC"})
    assert refusal_of(await sick.client.send("New", b"x")) == (14, "disk_full", "no")
    assert (await sick.put(b"known topics go on")).code == 0
    sick.rules()
    assert (await sick.client.send("New", b"x")).code == 0


@pytest.mark.parametrize(("append_mode", "refuses"), [("mapped", WRITES), ("written", WRITES), ("mapped", ["sync"])])
async def test_a_read_only_disk(harness: Harness, tmp_path: Path, append_mode: str, refuses: list[str]) -> None:
    """Appends notice it at once, and work again when it is writable; if the system accepts them, the sync fences."""
    sick = await SickBroker(harness, tmp_path, append_mode=append_mode, flush_disk_type="SYNC_FLUSH").start()
    assert (await sick.put(b"before")).code == 0
    sick.rules({"operations": refuses, "error": "EROFS"})
    refused = await sick.put(b"refused")
    if refuses == WRITES:
        assert refusal_of(refused) == (14, "read_only", "no")
    else:
        assert refusal_of(refused) == (14, "fenced", "unknown")
        assert "Read-only file system" in refused.remark
    assert (await sick.read())[:1] == [b"before"]
    sick.rules()
    after = await sick.put(b"after")
    if refuses == WRITES:
        assert await sick.read() == [b"before", b"after"]
    else:
        assert refusal_of(after) == (14, "fenced", "no")


async def test_a_bad_sector_stops_one_queue_only(harness: Harness, tmp_path: Path) -> None:
    """In a pull of several queues the others are served; a pull of the bad one alone gets the error."""
    sick = await SickBroker(harness, tmp_path).start()
    client = sick.client
    for number in range(40):
        assert (await client.send(body=b"%03d" % number + bytes(4000), queue_id=0)).code == 0
    await client.put(b"well", queue_id=1)
    await eventually(lambda: sick.app.store.max_offset("T", 1) == 1)
    sick.rules({"operations": ["read"], "path": f"commitlog/{0:020d}", "error": "EIO"})
    both = await client.native_pull(("T", 0, 0), ("T", 1, 0))
    assert [record.body for record in records_of(both)] == [b"well"]
    assert both.header.results[0][1] == 0
    alone = await client.native_pull(("T", 0, 0))
    assert refusal_of(alone) == (14, "disk_error", "no")
    assert "Input/output error" in alone.remark
    typed = await client.pull(offset=0)
    assert typed.code == 14
    assert (await client.send(body=b"goes on")).code == 0
    assert sick.health() == []


async def test_a_filling_disk_deletes_nothing_and_says_so(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledged messages stay, sends work; the log names topics, counts and groups behind, /health has the next step
    and the cure.
    """
    free = [0.5e12]
    monkeypatch.setattr(OsFileSystem, "free_bytes", lambda self, path: (int(free[0]), int(1e12)))
    sick = await SickBroker(
        harness,
        tmp_path,
        disk_space_clean_forcibly_ratio=85,
        disk_space_warning_level_ratio=90,
        delete_when="",
    ).start()
    for number in range(60):
        assert (await sick.put(b"%03d" % number + bytes(4000))).code == 0
    store = sick.app.store
    store.show_all()
    store.checkpoint()
    sick.app.offsets.commit("audit", "T", 0, 1)
    free[0] = 0.13e12
    retention = store.retention
    retention._round_from_ns = retention._disk_check_due_ns = 0  # the first minute is over
    retention._worker.wake()  # type: ignore[union-attr]
    (warning,) = await eventually(lambda: sick.log.of("disk_filling"))
    assert warning["level"] == "warning"
    assert list(warning["topics"]) == ["T"]
    assert 0 < warning["messages"] < 60
    assert warning["groups_behind"] == ["audit"]
    disk = sick.app.observation.disk
    assert disk is not None
    disk.refresh()
    report = sick.app.observation.health.report()
    assert (report.status, report.reasons, report.warnings) == ("ok", [], ["disk_almost_full"])
    assert report.details == {
        "disk_almost_full": f"the disk of {store.paths.root} is 87 % full (121 GiB are free): nothing younger "
        "than 72 hours "
        "(store.file_reserved_time) is deleted, and above 90 % sends are refused "
        "(store.disk_space_warning_level_ratio); free space on the disk, shorten store.file_reserved_time, or have the "
        "oldest messages deleted, read or not: store.clean_file_forcibly_enable = true"
    }
    assert (await sick.put(b"taken")).code == 0
    assert sick.log.of("segment_removed") == []
    assert await sick.read() == sick.acknowledged


async def test_the_warning_level_refuses_sends(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the flag the answer is 14 and ``disk_full``, and /health shows it; without it sends work."""
    used = [0.5]
    monkeypatch.setattr(OsFileSystem, "free_bytes", lambda self, path: (int((1 - used[0]) * 1e12), int(1e12)))
    sick = await SickBroker(harness, tmp_path, disk_space_warning_level_ratio=90).start()
    used[0] = 0.93
    sick.app.store.retention.check_disk()
    refused = await sick.put(b"refused")
    assert refusal_of(refused) == (14, "disk_full", "no")
    assert "93 % full: above 90 % sends are refused (store.disk_space_warning_level_ratio)" in refused.remark
    assert sick.health() == ["disk_full"]
    assert "93 % full" in sick.app.observation.health.report().details["disk_full"]
    used[0] = 0.8
    sick.app.store.retention.check_disk()
    assert (await sick.put(b"taken")).code == 0
    assert sick.health() == []


async def test_cleaning_on_demand(harness: Harness, tmp_path: Path) -> None:
    """329 removes expired segments, 306 their entries; a query for a removed message by id reports the removal."""
    sick = await SickBroker(harness, tmp_path, file_reserved_time=0, delete_commit_log_files_interval=0).start()
    for number in range(60):
        assert (await sick.put(b"%03d" % number + bytes(4000))).code == 0
    store = sick.app.store
    store.show_all()
    store.checkpoint()
    assert (await sick.client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == 0
    await eventually(lambda: len(store.log._segments) == 1)
    assert (await sick.client.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0
    min_offset = store.min_offset("T", 0)
    assert await sick.read() == sick.acknowledged[min_offset:]
    gone = await sick.client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(0))
    assert f"it was removed, the log begins at {store.log.min_offset}" in gone.remark
    moved = await sick.client.pull(offset=0)
    assert (moved.code, moved.header.next_begin_offset, moved.header.min_offset) == (21, min_offset, min_offset)


async def test_a_config_directory_removed_under_a_running_broker(harness: Harness, tmp_path: Path) -> None:
    """Topics and offsets are in memory: they are written again, changed or not, and a restart has them."""
    sick = await SickBroker(harness, tmp_path).start()
    await sick.put(b"x")
    await sick.put(b"y")
    await eventually(lambda: sick.app.store.max_offset("T", 0) == 2)
    sick.app.offsets.on_first = None  # this test decides when tables are written
    sick.app.offsets.commit("old", "T", 0, 1)
    keeper = sick.keeper()
    keeper.persist()
    config = tmp_path / "store" / "config"
    names = {path.name for path in config.iterdir()}
    shutil.rmtree(config)
    sick.app.offsets.commit("new", "T", 0, 2)
    keeper.persist()
    assert {"topics.json", "consumerOffset.json", "subscriptionGroup.json"} <= {path.name for path in config.iterdir()}
    shutil.rmtree(config)
    await sick.app.stop()
    assert {path.name for path in config.iterdir()} >= {name for name in names if not name.endswith(".bak")}
    again = await sick.start()
    assert again.app.topics.get("T") is not None
    assert (again.app.offsets.query("old", "T", 0), again.app.offsets.query("new", "T", 0)) == (1, 2)


async def test_a_stop_that_cannot_write_a_table_writes_the_rest_and_says_so(harness: Harness, tmp_path: Path) -> None:
    """Offsets are there, the log is closed cleanly, and the caller learns which file is missing."""
    sick = await SickBroker(harness, tmp_path).start()
    await sick.put(b"x")
    await eventually(lambda: sick.app.store.max_offset("T", 0) == 1)
    # first: a group's first commit lets all tables be written at once
    sick.rules({"operations": ["replace"], "path": "config/topics.json", "error": "ENOSPC"})
    sick.app.offsets.commit("group", "T", 0, 1)
    sick.app.topics.create("Late", 1)
    with pytest.raises(StoreFull, match=r"topics\.json"):
        await sick.app.stop()
    assert not (tmp_path / "store" / "abort").exists()
    sick.rules()
    again = await sick.start()
    assert again.app.offsets.query("group", "T", 0) == 1
    assert await again.read() == [b"x"]


async def with_tables(harness: Harness, tmp_path: Path) -> SickBroker:
    """Return a stopped broker with a message, an offset and a topic in its tables, each with a backup."""
    sick = await SickBroker(harness, tmp_path).start()
    await sick.put(b"x")
    await eventually(lambda: sick.app.store.max_offset("T", 0) == 1)
    sick.app.offsets.on_first = None  # here this function decides when tables are written
    sick.app.offsets.commit("first", "T", 0, 1)
    sick.keeper().persist()
    sick.app.offsets.commit("second", "T", 0, 1)
    await sick.client.send("Late", b"late")
    await eventually(lambda: sick.app.store.max_offset("Late", 0) == 1)
    await sick.app.stop()
    sick.log.events.clear()
    return sick


async def test_a_flipped_bit_in_the_offsets_does_not_forget_them(harness: Harness, tmp_path: Path) -> None:
    """``offretTable`` for ``offsetTable``: the backup is used, which is logged; the damaged file is kept, and stays."""
    sick = await with_tables(harness, tmp_path)
    path = tmp_path / "store" / "config" / "consumerOffset.json"
    damaged = path.read_bytes().replace(b"offsetTable", b"offretTable")
    path.write_bytes(damaged)
    again = await sick.start()
    assert again.app.offsets.query("first", "T", 0) == 1
    (told,) = [event for event in again.log.events if event["event"] == "config_file_damaged"]
    assert (told["level"], told["path"], told["taken"]) == ("error", str(path), f"{path}.bak")
    kept, backup = path.with_name(f"{path.name}.damaged-1"), path.with_name(f"{path.name}.bak")
    assert told["kept_as"] == str(kept)
    assert kept.read_bytes() == damaged
    await again.stop()
    assert kept.read_bytes() == damaged
    assert damaged not in (path.read_bytes(), backup.read_bytes())
    assert (await sick.start()).app.offsets.query("first", "T", 0) == 1


async def test_a_topic_that_the_backup_lacks_is_made_again(harness: Harness, tmp_path: Path) -> None:
    """Its messages are there, acknowledged: they can be read."""
    sick = await with_tables(harness, tmp_path)
    config = tmp_path / "store" / "config"
    assert b'"Late"' not in (config / "topics.json.bak").read_bytes()
    (config / "topics.json").write_bytes(b"{}")
    again = await sick.start()
    assert [event["topics"] for event in again.log.events if event["event"] == "topics_made_again"] == [["Late"]]
    assert [record.body for record in records_of(await again.client.native_pull(("Late", 0, 0)))] == [b"late"]


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json"])
async def test_without_a_sound_file_the_start_is_refused_and_says_the_way_out(
    harness: Harness, tmp_path: Path, name: str
) -> None:
    """Both files are named and stay as they are; moved away, the broker starts."""
    sick = await with_tables(harness, tmp_path)
    path = tmp_path / "store" / "config" / name
    files = (path, path.with_name(f"{name}.bak"))
    for each in files:
        each.write_bytes(b"{}")
    with pytest.raises(CorruptRecord, match="move both files away") as caught:
        await sick.start()
    assert all(str(each) in str(caught.value) for each in files)
    assert [each.read_bytes() for each in files] == [b"{}", b"{}"]
    for each in files:
        each.rename(each.with_suffix(".away"))
    again = await sick.start()
    assert await again.read() == [b"x"]
