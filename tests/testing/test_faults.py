"""The disk that fails on request."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tests.store.disk.test_os_file_system as contract
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import Cause, ConfigError
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import SteppedRunner
from pocketmq.store.append_result import PutStatus
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.errors import DiskError, StoreFull, StoreReadOnly
from pocketmq.store.message_store import MessageStore
from pocketmq.testing.faults import LOOK_INTERVAL_NS, OPERATIONS, FaultConfig, FaultFileSystem, FaultPlan
from tests.store.log_fakes import bodies, split, store_config

LOOK_MS = LOOK_INTERVAL_NS / 1e6


class Faulty:
    """A file system with rules, whose clock and waits only count."""

    def __init__(self, root: Path, *rules: dict[str, Any], seed: int = 0) -> None:
        self.root = root
        self.control = root / "faults.json"
        self.clock = ManualClock()
        self.log = CapturedLog()
        self.slept_s: list[float] = []
        if rules:
            self.write(*rules)
        self.plan = FaultPlan(
            OsFileSystem(), str(self.control), str(root), self.clock, self.log, seed=seed, sleep=self.sleep
        )
        self.files = FaultFileSystem(OsFileSystem(), self.plan)

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.clock.advance_ms(seconds * 1000)

    def write(self, *rules: dict[str, Any]) -> None:
        self.control.write_text(json.dumps({"rules": rules}))

    def later(self) -> None:
        self.clock.advance_ms(LOOK_MS)

    def file(self, name: str = "f") -> Any:
        return self.files.open(str(self.root / name), create=True)


def wrapped() -> FaultFileSystem:
    return FaultFileSystem(
        OsFileSystem(), FaultPlan(OsFileSystem(), "/nonexistent/rules", "/", ManualClock(), CapturedLog())
    )


@pytest.mark.parametrize(
    "check",
    [
        contract.test_what_is_written_is_read_and_the_end_of_a_file_is_short,
        contract.test_a_map_and_its_file_show_the_same_bytes,
        contract.test_zeroed_ranges_and_holes,
        contract.test_replace_leaves_the_whole_new_content,
        contract.test_missing_files_and_directories,
        contract.test_a_lock_excludes_a_second_holder_until_it_is_released,
    ],
)
def test_without_rules_it_does_what_the_real_one_does(
    check: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wrapped disk passes the tests of the real one."""
    monkeypatch.setattr(contract, "OsFileSystem", wrapped)
    check(tmp_path)


def test_every_call_asks_the_plan_under_its_name(tmp_path: Path) -> None:
    """A rule for one operation affects exactly the calls of that name."""
    calls: dict[str, list[Callable[[FileSystem], object]]] = {
        "open": [lambda files: files.open(path)],
        "exists": [lambda files: files.exists(path)],
        "stat": [lambda files: files.size(path), lambda files: files.modified_ms(path)],
        "list": [lambda files: files.list(str(tmp_path))],
        "make_dirs": [lambda files: files.make_dirs(str(tmp_path / "d"))],
        "rename": [lambda files: files.rename(path, path)],
        "read_all": [lambda files: files.read_all(path)],
        "replace": [lambda files: files.replace(path, b"new")],
        "sync_dir": [lambda files: files.sync_dir(str(tmp_path))],
        "sync_all": [lambda files: files.sync_all(str(tmp_path))],
        "lock_file": [lambda files: files.lock_file(str(tmp_path / "lock"), "me").release()],
        "free_bytes": [lambda files: files.free_bytes(path)],
        "remove": [
            lambda files: files.remove(path + "2"),
            lambda files: files.remove_tree(path + "3", below=str(tmp_path)),
        ],
        "read": [lambda files: files.open(path).read(0, 1), lambda files: files.open(path).read_into(0, out)],
        "write_at": [lambda files: files.open(path).write_at(0, b"w")],
        "reserve": [lambda files: files.open(path).reserve(8192)],
        "resize": [lambda files: files.open(path).resize(8192)],
        "zero": [lambda files: files.open(path).zero(0, 1)],
        "seek": [lambda files: files.open(path).next_data(0), lambda files: files.open(path).next_hole(0)],
        "sync": [lambda files: files.open(path).sync()],
        "map": [lambda files: files.open(path).map()],
        "store": [lambda files: files.open(path).map().store(0, b"s")],
        "scatter": [lambda files: files.open(path).map().scatter(np.array([0]), np.array([[1]], np.uint8))],
    }
    assert set(calls) == set(OPERATIONS)
    path = str(tmp_path / "f")
    out = np.zeros(1, np.uint8)
    faulty = Faulty(tmp_path)
    faulty.file().reserve(8192)
    for operation in OPERATIONS:
        faulty.write({"operations": [operation], "path": "*", "error": "EIO"})
        for name, each in calls.items():
            uses = {name, *(("open",) if name in FILE_CALLS else ()), *(("map",) if name in MAP_CALLS else ())}
            for call in each:
                faulty.later()
                if operation in uses:
                    with pytest.raises(DiskError, match="by a fault rule"):
                        call(faulty.files)
                else:
                    call(faulty.files)


MAP_CALLS = ("store", "scatter")
FILE_CALLS = ("read", "write_at", "reserve", "resize", "zero", "seek", "sync", "map", *MAP_CALLS)


@pytest.mark.parametrize(("name", "kind"), [("EIO", DiskError), ("ENOSPC", StoreFull), ("EROFS", StoreReadOnly)])
def test_an_error_is_the_one_the_disk_would_give(name: str, kind: type[Exception], tmp_path: Path) -> None:
    """Each error raises its class; nothing is written."""
    faulty = Faulty(tmp_path, {"operations": ["write_at"], "path": "f", "error": name})
    file = faulty.file()
    with pytest.raises(kind, match="write_at failed by a fault rule"):
        file.write_at(0, b"x")
    assert file.size() == 0
    assert faulty.log.of("fault_injected")


def test_a_delay_waits_and_then_does_the_call(tmp_path: Path) -> None:
    """The call is executed late; other paths are not delayed."""
    faulty = Faulty(tmp_path, {"operations": ["write_at", "sync"], "path": "commit*", "delay_ms": 250})
    faulty.file("commitlog").write_at(0, b"late")
    faulty.file("other").write_at(0, b"soon")
    assert faulty.slept_s == [0.25]
    assert (tmp_path / "commitlog").read_bytes() == b"late"


def test_a_glob_is_relative_to_the_store_and_passes_slashes(tmp_path: Path) -> None:
    """``commitlog/*`` means the files of the log and no others."""
    faulty = Faulty(tmp_path, {"operations": ["exists"], "path": "commitlog/*", "error": "EIO"})
    with pytest.raises(DiskError):
        faulty.files.exists(f"{tmp_path}/commitlog/00000000000000000000")
    assert not faulty.files.exists(f"{tmp_path}/index/commitlog/x")
    assert not faulty.files.exists("/commitlog/x")


def test_a_rule_may_mean_large_calls_only(tmp_path: Path) -> None:
    """A small write passes, a large one does not; calls without a size do not count as large."""
    faulty = Faulty(tmp_path, {"operations": ["write_at", "read", "sync"], "path": "f", "error": "EIO", "bytes_min": 9})
    file = faulty.file()
    file.write_at(0, b"12345678")
    file.sync()
    assert file.read(0, 8) == b"12345678"
    with pytest.raises(DiskError):
        file.write_at(0, b"123456789")
    with pytest.raises(DiskError):
        file.read_into(0, np.zeros(9, np.uint8))


def test_every_and_count_pick_the_calls(tmp_path: Path) -> None:
    """Every third call is hit, twice in all."""
    faulty = Faulty(tmp_path, {"operations": ["write_at"], "path": "f", "error": "EIO", "every": 3, "count": 2})
    file = faulty.file()
    hit = []
    for number in range(1, 13):
        try:
            file.write_at(0, b"x")
        except DiskError:
            hit.append(number)
    assert hit == [3, 6]
    assert faulty.plan.hits() == 2


def test_a_seed_gives_the_same_faults(tmp_path: Path) -> None:
    """A probability hits some calls and not others, and the same ones for the same seed."""

    def hits(seed: int) -> list[bool]:
        faulty = Faulty(
            tmp_path, {"operations": ["exists"], "path": "f", "error": "EIO", "probability": 0.5}, seed=seed
        )
        found = []
        for _ in range(40):
            try:
                faulty.files.exists(str(tmp_path / "f"))
                found.append(False)
            except DiskError:
                found.append(True)
        return found

    first = hits(7)
    assert first == hits(7)
    assert 5 < sum(first) < 35
    assert first != hits(8)


def test_rules_change_while_it_runs_but_are_looked_at_only_now_and_then(tmp_path: Path) -> None:
    """A new rules file takes effect 20 ms later; removing it ends the faults."""
    faulty = Faulty(tmp_path)
    file = faulty.file()
    faulty.write({"operations": ["sync"], "error": "EIO"})
    file.sync()
    faulty.later()
    with pytest.raises(DiskError):
        file.sync()
    faulty.control.unlink()
    with pytest.raises(DiskError):
        file.sync()
    faulty.later()
    file.sync()


def test_a_rule_that_stays_keeps_its_count(tmp_path: Path) -> None:
    """If the file is replaced because of another rule, this rule does not start again."""
    once = {"operations": ["sync"], "error": "EIO", "count": 1}
    faulty = Faulty(tmp_path, once)
    file = faulty.file()
    with pytest.raises(DiskError):
        file.sync()
    faulty.write(once, {"operations": ["list"], "delay_ms": 1})
    faulty.later()
    file.sync()


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"rules": [{"operations": ["burn"]}]}',
        b'{"rules": "\xff"}',
        b"[" * 50_000,
        b'{"rules": [{"operations": []}]}',
        b'{"rules": [{"operations": ["sync"], "delay_ms": -1}]}',
        b'{"rules": [{"operations": ["sync"], "bytes_min": -1}]}',
        b'{"rules": [{"operations": ["sync"], "dely_ms": 1}]}',
        b" " * 70_000,
    ],
)
def test_rules_that_make_no_sense_are_reported_once_and_leave_the_old_ones(content: bytes, tmp_path: Path) -> None:
    """A typing error does not repair the disk."""
    faulty = Faulty(tmp_path, {"operations": ["sync"], "error": "EIO"})
    file = faulty.file()
    faulty.control.write_bytes(content)
    for _ in range(3):
        faulty.later()
        with pytest.raises(DiskError):
            file.sync()
    assert len(faulty.log.of("fault_rules_refused")) == 1


def test_rules_that_cannot_be_read_are_reported_once_and_leave_the_old_ones(tmp_path: Path) -> None:
    """A directory in the file's place is no rules file; a file in its place is read again."""
    faulty = Faulty(tmp_path, {"operations": ["sync"], "error": "EIO"})
    file = faulty.file()
    with pytest.raises(DiskError):
        file.sync()
    faulty.control.unlink()
    faulty.control.mkdir()
    for _ in range(3):
        faulty.later()
        with pytest.raises(DiskError):
            file.sync()
    assert len(faulty.log.of("fault_rules_unreadable")) == 1
    faulty.control.rmdir()
    faulty.write()
    faulty.later()
    file.sync()


def test_the_same_rule_twice_counts_once(tmp_path: Path) -> None:
    """Each call is affected once."""
    rule = {"operations": ["sync"], "delay_ms": 10}
    faulty = Faulty(tmp_path, rule, rule)
    faulty.file().sync()
    assert faulty.slept_s == [0.01]


def test_a_hang_ends_when_its_rule_is_gone(tmp_path: Path) -> None:
    """The call waits while the rule is present, then completes; other threads go on meanwhile."""
    faulty = Faulty(tmp_path, {"operations": ["write_at"], "path": "f", "hang": True})
    ticks = 0

    def sleep(seconds: float) -> None:
        nonlocal ticks
        ticks += 1
        faulty.clock.advance_ms(seconds * 1000)
        assert threading.active_count() >= 1
        if ticks == 3:
            faulty.file("g").write_at(0, b"not stopped")
        if ticks == 10:
            faulty.write()

    faulty.plan._sleep = sleep
    faulty.file().write_at(0, b"done")
    assert 10 <= ticks <= 12
    assert (tmp_path / "f").read_bytes() == b"done"
    assert (tmp_path / "g").read_bytes() == b"not stopped"


def test_a_store_over_it_refuses_what_the_disk_refuses_and_goes_on_later(tmp_path: Path) -> None:
    """The rules hold for appends: small records are written; of large ones the body is mapped and the head written."""
    faulty = Faulty(tmp_path)
    store = MessageStore(
        store_config(tmp_path / "store"), file_system=faulty.files, clock=faulty.clock, runner=SteppedRunner()
    )
    store.open()
    assert store.append(bodies(b"before")).status is PutStatus.PUT_OK
    for operation, body in (("write_at", b"refused"), ("write_at", b"refused" * 1000), ("store", b"refused" * 1000)):
        faulty.write({"operations": [operation], "path": "store/commitlog/*", "error": "ENOSPC"})
        faulty.later()
        assert store.append(bodies(body)).cause is Cause.DISK_FULL
    faulty.write()
    faulty.later()
    assert store.append(bodies(b"after")).status is PutStatus.PUT_OK
    store.dispatcher.catch_up()
    found = store.get("T", 0, 0, max_messages=10, max_bytes=1 << 20)
    assert [record.body for record in split(found.body, found.sizes)] == [b"before", b"after"]
    store.close()


def test_the_section_needs_a_file_for_its_rules() -> None:
    """Without a control file the enabled section is refused; it is off by default."""
    assert not FaultConfig().enable
    with pytest.raises(ConfigError, match="control_file"):
        FaultConfig(enable=True)
    assert os.path.basename(FaultConfig(enable=True, control_file="/tmp/x").control_file) == "x"
