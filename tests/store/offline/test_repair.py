"""Repairs: their changes, their limits, and the plan shown before."""

import shutil
import struct
from pathlib import Path

import pytest

from pocketmq.common.record_codec import decode_record
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.errors import DiskError, StoreFull, StoreInUse
from pocketmq.store.offline.errors import NotAStore, RepairRefused
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.repair import Repair, RepairPlan, plan_repair
from pocketmq.store.offline.verify import verify
from tests.store.log_fakes import HookedFileSystem, Killed, Stepped, log_bytes
from tests.store.offline.rocketmq_files import QUEUE_FILE_BYTES, RocketStore, some_messages, tree

CASES = ("tail", "queue", "queue_gone", "queue_size", "index", "index_size", "checkpoint")


def planned(root: Path) -> RepairPlan:
    reader = StoreReader.open(str(root))
    return plan_repair(reader, verify(reader))


def spoil(root: Path, store: RocketStore, case: str) -> None:
    queue = root / "consumequeue" / "Orders" / "1" / f"{0:020d}"
    if case == "tail":
        path = root / "commitlog" / f"{max(store.log):020d}"
        data = bytearray(path.read_bytes())
        at = store.at - max(store.log)
        data[at : at + 50] = data[:50]
        path.write_bytes(data)
    elif case == "queue":
        data = bytearray(queue.read_bytes())
        data[100:120] = struct.pack(">qiq", 1, 2, 3)
        queue.write_bytes(data)
    elif case == "queue_gone":
        shutil.rmtree(root / "consumequeue")
    elif case == "queue_size":
        queue.write_bytes(queue.read_bytes()[:333])
    elif case == "index":
        (path,) = (root / "index").iterdir()
        data = bytearray(path.read_bytes())
        data[200:1200] = bytes(1000)
        path.write_bytes(data)
    elif case == "index_size":
        (path,) = (root / "index").iterdir()
        path.write_bytes(b"half")
    else:
        (root / "checkpoint").write_bytes(struct.pack(">5q", 1 << 60, 1 << 60, 1 << 60, 1 << 60, 0).ljust(4096, b"\0"))


@pytest.mark.parametrize("case", CASES)
def test_a_repaired_rocketmq_store_is_the_one_it_was(tmp_path: Path, case: str) -> None:
    """Damaged parts are repaired in RocketMQ's format: log and queues byte for byte, and everything verifies again."""
    store = some_messages(tmp_path / "s", 100)
    root = store.write()
    sound = tree(root)
    spoil(root, store, case)
    spoilt = tree(root)
    plan = planned(root)
    assert plan.steps
    assert plan.stays == []
    assert tree(root) == spoilt, "a plan changes nothing"
    result = Repair(str(root), index_numbers=(20, 80)).run()
    assert result.after is not None
    assert result.after.ok, result.after
    after = {name: data for name, data in tree(root).items() if not name.startswith("pocketmq/quarantine")}
    for name, data in sound.items():
        if name.startswith(("commitlog", "consumequeue", "config")):
            if case == "queue_gone" and name.startswith("consumequeue"):
                continue  # no file is left to show their size: RocketMQ's default applies
            assert after[name] == data, name
    assert not (root / "pocketmq" / "positions.json").exists()
    copies = tree(Path(result.backup))
    changed = [
        name for name, data in spoilt.items() if after.get(name) != data and not name.startswith(("commitlog", "lock"))
    ]
    assert all(copies[name] == spoilt[name] for name in changed)
    assert planned(root).steps == []


def test_a_sound_store_is_left_alone(tmp_path: Path) -> None:
    """No step is needed: no copies are made, only the lock file is touched."""
    root = some_messages(tmp_path / "s", 40).write()
    before = tree(root)
    result = Repair(str(root)).run()
    assert result.plan.steps == []
    assert result.backup == ""
    assert {name: data for name, data in tree(root).items() if name != "lock"} == {
        name: data for name, data in before.items() if name != "lock"
    }


def test_entries_of_messages_that_are_gone_keep_the_offsets_of_their_queue(tmp_path: Path) -> None:
    """A rebuilt queue keeps the entries below the log's first byte: the next message does not get offset 0."""
    store = some_messages(tmp_path / "s", 100, first_segment=0)
    root = store.write()
    (root / "commitlog" / f"{0:020d}").unlink()
    spoil(root, store, "queue")
    queue = root / "consumequeue" / "Orders" / "1" / f"{0:020d}"
    data = bytearray(queue.read_bytes())
    first_kept = next(n for n in range(50) if struct.unpack_from(">q", data, n * 20)[0] >= 16_384)
    struct.pack_into(">qiq", data, 100, *struct.unpack_from(">qiq", data, 80))
    at = (first_kept + 2) * 20
    good = bytes(data)
    struct.pack_into(">qiq", data, at, 20_001, 5, 0)
    queue.write_bytes(data)
    assert [step.action for step in planned(root).steps] == ["rebuild_queues"]
    result = Repair(str(root)).run()
    assert result.after is not None
    assert result.after.ok
    assert queue.read_bytes()[: (first_kept + 5) * 20] == good[: (first_kept + 5) * 20]


def test_damage_in_the_middle_stays_and_is_said_to(tmp_path: Path) -> None:
    """A repair does not touch bad bytes between good records; the plan names them and the cure."""
    store = some_messages(tmp_path / "s", 100)
    victim = store.sent[50]
    base = victim.physical_offset - victim.physical_offset % 16_384
    store.log[base][victim.physical_offset - base + 4] ^= 0xFF
    root = store.write()
    result = Repair(str(root)).run()
    assert [str(victim.physical_offset) in text for text in result.plan.stays] == [True]
    assert result.after is not None
    assert not result.after.ok
    assert (root / "commitlog" / f"{base:020d}").read_bytes() == bytes(store.log[base])


def test_our_own_store_opens_after_a_repair(tmp_path: Path) -> None:
    """A torn tail, a lost queue, positions that promise more: after the repair our broker finds all good messages."""
    stepped = Stepped(tmp_path / "s")
    for number in range(12):
        stepped.append(b"%d" % number * 200, queue_id=number % 2)
    stepped.store.close()
    root = tmp_path / "s"
    reader = StoreReader.open(str(root), index_numbers=(64, 512))
    end = verify(reader).end_offset
    path = root / "commitlog" / f"{end - end % 8192:020d}"
    data = bytearray(path.read_bytes())
    data[end % 8192 : end % 8192 + 300] = b"\xaa" * 300
    path.write_bytes(data)
    shutil.rmtree(root / "consumequeue" / "T" / "1")
    result = Repair(str(root), index_numbers=(64, 512)).run()
    assert [step.action for step in result.plan.steps] == ["cut_tail", "rebuild_queues"]
    assert result.after is not None
    assert result.after.ok, result.after
    again = Stepped(root)
    assert again.report.cut_bytes == 0
    assert again.bodies(queue_id=1) == [b"%d" % number * 200 for number in range(1, 12, 2)]
    assert again.bodies(queue_id=0) == [b"%d" % number * 200 for number in range(0, 12, 2)]
    again.store.close()


def test_a_store_in_use_is_refused_untouched(tmp_path: Path) -> None:
    """While a broker has the lock no file changes, whatever is wrong."""
    stepped = Stepped(tmp_path / "s")
    stepped.append(b"x")
    before = tree(tmp_path / "s")
    with pytest.raises(StoreInUse):
        Repair(str(tmp_path / "s")).run()
    assert tree(tmp_path / "s") == before
    stepped.store.close()


def test_refusals_come_before_any_change(tmp_path: Path) -> None:
    """No store, a directory for copies that is not empty, a full disk: the store's files stay unchanged."""
    with pytest.raises(NotAStore):
        Repair(str(tmp_path / "none")).run()
    assert not (tmp_path / "none").exists()
    store = some_messages(tmp_path / "s", 60)
    root = store.write()
    spoil(root, store, "queue")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    before = {name: data for name, data in tree(root).items() if name != "lock"}
    with pytest.raises(RepairRefused):
        Repair(str(root), backup=str(tmp_path / "full")).run()

    class Full(OsFileSystem):
        def free_bytes(self, path: str) -> tuple[int, int]:
            return 1000, 1 << 40

    with pytest.raises(StoreFull):
        Repair(str(root), file_system=Full()).run()
    assert {name: data for name, data in tree(root).items() if name != "lock"} == before


@pytest.mark.slow
def test_a_repair_that_was_stopped_anywhere_can_be_repeated(tmp_path: Path) -> None:
    """The disk fails at each change in turn; the next repair ends with a sound store and the same queues."""
    store = some_messages(tmp_path / "sound", 60)
    sound = store.write()
    number = 0
    while True:
        root = tmp_path / f"s{number}"
        shutil.copytree(sound, root)
        spoil(root, store, "tail")
        spoil(root, store, "queue")
        left = number

        def before(operation: str, path: str) -> None:
            nonlocal left
            if path.endswith("/lock"):
                return
            if left == 0:
                raise DiskError("failed", why=f"{operation} {path}")
            left -= 1

        try:
            Repair(str(root), file_system=HookedFileSystem(before), backup=str(tmp_path / f"b{number}")).run()
            break
        except DiskError:
            pass
        result = Repair(str(root), backup=str(tmp_path / f"c{number}")).run()
        assert result.after is not None
        assert result.after.ok, (number, result.after)
        name = f"consumequeue/Orders/1/{0:020d}"
        assert tree(root)[name][:QUEUE_FILE_BYTES] == tree(sound)[name], number
        number += 1
    assert number > 5


def closed_store(root: Path, torn: bytes) -> int:
    """Make a store of twelve groups in two queues, closed, the last 150 bytes of its log replaced; return its end."""
    stepped = Stepped(root)
    for number in range(12):
        end = stepped.append(b"%d" % number * 200, queue_id=number % 2)
    stepped.store.close()
    path = root / "commitlog" / f"{end - end % 8192:020d}"
    data = bytearray(path.read_bytes())
    data[end % 8192 - 150 : end % 8192] = (torn * 150)[:150]
    path.write_bytes(data)
    return end


@pytest.mark.parametrize("torn", [b"\xaa", b"\0"])
def test_an_acknowledged_end_is_damage_and_keeps_its_place(tmp_path: Path, torn: bytes) -> None:
    """Bytes that positions promised are never cut, even if other parts are repaired: the queue offset is not reused."""
    root = tmp_path / "s"
    end = closed_store(root, torn)
    shutil.rmtree(root / "consumequeue" / "T" / "0")
    log = log_bytes(root)
    result = Repair(str(root), index_numbers=(64, 512)).run()
    assert "cut_tail" not in [step.action for step in result.plan.steps]
    assert any("are damaged" in text for text in result.plan.stays)
    assert log_bytes(root) == log
    assert result.after is not None
    assert [(each.kind, each.end) for each in result.after.findings] == [("damage", end)]
    again = Stepped(root)
    assert [(part.end, again.report.end_offset) for part in again.report.damaged] == [(end, end)]
    again.append(b"later", queue_id=1)
    assert [(each.queue_offset, each.body) for each in again.records(queue_id=1)][-2:] == [
        (4, b"9" * 200),
        (6, b"later"),
    ]
    assert [each.queue_offset for each in again.records(queue_id=0)] == list(range(6))
    again.store.close()


@pytest.mark.slow
def test_a_broker_may_start_on_a_repair_that_was_stopped(tmp_path: Path) -> None:
    """Wherever a repair is stopped, a broker started then has every message in its queue, at its offset."""
    sound = tmp_path / "sound"
    stepped = Stepped(sound)
    for number in range(12):
        stepped.append(b"%d" % number * 200, queue_id=number % 2)
    expected = [[(each.queue_offset, each.body) for each in stepped.records(queue_id=queue)] for queue in (0, 1)]
    stepped.store.close()
    shutil.rmtree(sound / "consumequeue" / "T" / "1")
    number = 0
    stopped = True
    while stopped:
        root = tmp_path / f"s{number}"
        shutil.copytree(sound, root)
        left = number

        def before(operation: str, path: str) -> None:
            nonlocal left
            if path.endswith("/lock"):
                return
            if left == 0:
                raise Killed
            left -= 1

        try:
            Repair(str(root), file_system=HookedFileSystem(before), index_numbers=(64, 512)).run()
            stopped = False
        except Killed:
            pass
        again = Stepped(root)
        found = [[(each.queue_offset, each.body) for each in again.records(queue_id=queue)] for queue in (0, 1)]
        assert found == expected, number
        again.store.close()
        shutil.rmtree(root)
        number += 1
    assert number > 10


def test_a_queue_file_of_an_odd_size_is_no_measure(tmp_path: Path) -> None:
    """A store whose only queue file was cut within an entry is repaired with the default size; the plan reports it."""
    stepped = Stepped(tmp_path / "s", mapped_file_size_consume_queue=6_000_000)
    stepped.append(b"one")
    stepped.store.close()
    root = tmp_path / "s"
    queue = root / "consumequeue" / "T" / "0" / f"{0:020d}"
    queue.write_bytes(queue.read_bytes()[:333])
    result = Repair(str(root), index_numbers=(64, 512)).run()
    assert "no file shows their size" in result.plan.steps[0].why
    assert result.after is not None
    assert result.after.ok, result.after
    again = Stepped(root, mapped_file_size_consume_queue=6_000_000)
    assert again.bodies() == [b"one"]
    again.store.close()


@pytest.mark.parametrize("field_at", [12, 23, 26, 27])
@pytest.mark.parametrize("lose_other", [False, True])
def test_a_suspect_record_takes_nobodys_place(tmp_path: Path, field_at: int, lose_other: bool) -> None:
    """A changed queue id or queue offset in the log is no reason to change correct queues; a rebuilt queue leaves the
    record out.
    """
    root = tmp_path / "s"
    stepped = Stepped(root)
    for number in range(12):
        stepped.append(b"%d" % number * 20, queue_id=number % 2)
    stepped.write_checksums()
    expected = {(queue, each.queue_offset): each.body for queue in (0, 1) for each in stepped.records(queue_id=queue)}
    at = stepped.store.physical_offset("T", 0, 3)
    assert at is not None
    stepped.store.close()
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[at + field_at] ^= 1
    path.write_bytes(data)
    if lose_other:
        shutil.rmtree(root / "consumequeue" / "T" / "0")
    result = Repair(str(root), index_numbers=(64, 512)).run()
    assert ("rebuild_queues" in [step.action for step in result.plan.steps]) == lose_other
    assert any("the records stay as they are" in text for text in result.plan.stays)
    again = Stepped(root)
    found: dict[tuple[int, int], bytes] = {}
    for queue in (0, 1):
        offset = 0
        while offset < again.store.max_offset("T", queue):
            got = again.store.get("T", queue, offset, max_messages=1, max_bytes=1)
            if got.count:
                found[queue, offset] = decode_record(got.body.tobytes()).body
            offset += 1
    lost = {(0, 3): expected[0, 3]} if lose_other else {}
    assert found | lost == expected
    assert again.store.max_offset("T", 1) == 6
    again.store.close()
