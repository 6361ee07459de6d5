"""After one flipped bit a small file has the same content, is replaced by its backup, or stops the start."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delay.delay_offsets import DelayOffsets
from pocketmq.broker.delay.timer_queue import TimerProgress, TimerState
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.group.request_modes import RequestModes
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.ha.master_address import MasterAddress
from pocketmq.broker.ha.slave_mirror import LocalCommits
from pocketmq.broker.lock.fencing_tokens import FencingTokens
from pocketmq.broker.persisted_table import BACKUP, DAMAGED, KEPT_MAX, PersistedTable
from pocketmq.broker.pop.ordered_batches import OrderedBatches
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.broker.transaction.transaction_recovery import TransactionProgress
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import BytesIllegal, CorruptRecord
from pocketmq.common.events import NullLog
from pocketmq.common.logs import CapturedLog
from pocketmq.common.sealed_json import seal, unseal
from pocketmq.namesrv.epoch_store import EpochFile, EpochStore, EpochsUnreadable
from pocketmq.namesrv.epochs import EpochRecord
from pocketmq.remoting.protocol.pull import SetMessageRequestMode
from pocketmq.store.checkpoint import Positions, StorePaths
from pocketmq.store.commitlog.log_reader import DamagedRange
from pocketmq.store.consumequeue.deleted_topics import DeletedTopics
from pocketmq.store.errors import CorruptStore, FileMissing
from pocketmq.store.ha.state import HaState
from pocketmq.store.recovery.recovery import damage_is_unread, read_damage, write_damage

PATH = "/store/config/t.json"


class Files:
    """A file system that keeps whole files in memory."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = files or {}

    def read_all(self, path: str) -> bytes:
        if path not in self.files:
            raise FileMissing("not found", why=path)
        return self.files[path]

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> Any:
        raise FileMissing("not found", why=path)

    def exists(self, path: str) -> bool:
        return path in self.files

    def list(self, path: str) -> list[str]:
        return sorted(each.removeprefix(path + "/") for each in self.files if each.startswith(path + "/"))

    def rename(self, source: str, target: str) -> None:
        self.files[target] = self.files.pop(source)

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self.files[path] = data

    def make_dirs(self, path: str) -> None:
        """Do nothing: there are no directories here."""

    def sync_dir(self, path: str) -> None:
        """Do nothing: every write is durable."""


def refusal(call: Callable[[], object], kind: type[Exception]) -> str:
    """Return the reason for which ``call`` is refused, or an empty text."""
    try:
        call()
    except kind as error:
        return str(error)
    return ""


def flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (bit, data with that bit flipped) for every bit."""
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bit, bytes(flipped)


# ---- the tables of a broker


def put_topics(table: TopicTable, number: int) -> None:
    table.create(f"T{number}", 4)


def put_groups(table: SubscriptionGroups, number: int) -> None:
    table.find(f"g{number}")


def put_tokens(table: FencingTokens, number: int) -> None:
    table._written = 200_000 + 1000 * number
    table.generation += 1


def put_delays(table: DelayOffsets, number: int) -> None:
    table.settle({1: 17 + number, 3: 5})


def put_commits(table: LocalCommits, number: int) -> None:
    table.note("group", f"T{number}", 0, 17)


def put_transactions(table: TransactionProgress, number: int) -> None:
    table.settle(7 + number, 3, {8: 1})


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any, int], object]]] = {
    "topics": (lambda: TopicTable(BrokerConfig(), ManualClock()), put_topics),
    "groups": (lambda: SubscriptionGroups(BrokerConfig(), ManualClock()), put_groups),
    "offsets": (
        lambda: ConsumerOffsets(100),
        lambda table, number: table.commit("group", "T", number, 17 + number),
    ),
    "delay levels": (DelayOffsets, put_delays),
    "timers": (TimerProgress, lambda table, number: table.settle(TimerState(17 + number, 3, 1000, 7))),
    "transactions": (TransactionProgress, put_transactions),
    "tokens": (lambda: FencingTokens(lambda: 0), put_tokens),
    "commits at a slave": (LocalCommits, put_commits),
    "request modes": (
        lambda: RequestModes(100),
        lambda table, number: table.put(SetMessageRequestMode(f"T{number}", "g", "POP", number)),
    ),
    "ordered batches": (
        lambda: OrderedBatches(100),
        lambda table, number: table.begin("T", "g", number, [number, number + 2], 1_700_000_000_000, 1000, "a"),
    ),
    "address of the master": (MasterAddress, lambda table, number: table.learn(f"h:{number}", f"b:{number}")),
}


def persisted(table: Any, files: Any, log: Any = None) -> PersistedTable:
    return PersistedTable(table, PATH, files, NullLog() if log is None else log)


def state_of(kind: str, table: Any) -> Any:
    return table._reserved if kind == "tokens" else msgspec.json.decode(table.encode())


def written(kind: str) -> tuple[bytes, bytes]:
    """Return a file of this kind and its backup, which is one change older."""
    make, change = KINDS[kind]
    files, table = Files(), make()
    file = persisted(table, files)
    change(table, 1)
    file.persist()
    change(table, 2)
    file.persist()
    return files.files[PATH], files.files[PATH + BACKUP]


def loaded(kind: str, files: Files, log: Any = None) -> Any:
    table = KINDS[kind][0]()
    persisted(table, files, log).load()
    return state_of(kind, table)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind in ("topics", "groups") else ()) for kind in KINDS]
)
def test_a_flipped_bit_of_a_table_never_forgets_silently(kind: str) -> None:
    """With a backup: the same, or the backup, an event and the damaged file kept. Without: the same, or refused."""
    data, older = written(kind)
    now, before = loaded(kind, Files({PATH: data})), loaded(kind, Files({PATH: older}))
    assert now != before
    fell_back = refused = 0
    for bit, flipped in flips(data):
        log, files = CapturedLog(), Files({PATH: flipped, PATH + BACKUP: older})
        found = loaded(kind, files, log)
        told = [event for event in log.events if event["event"] == "config_file_damaged"]
        if told:
            fell_back += 1
            assert found == before, f"bit {bit}"
            assert (told[0]["path"], told[0]["taken"]) == (PATH, PATH + BACKUP)
            assert told[0]["level"] == "error"
            assert files.files == {PATH + BACKUP: older, told[0]["kept_as"]: flipped}
        else:
            assert found == now, f"bit {bit}"
        alone = KINDS[kind][0]()
        why = refusal(persisted(alone, Files({PATH: flipped})).load, CorruptRecord)
        if why:
            refused += 1
            assert PATH in why
            assert "move both files away" in why
        else:
            assert state_of(kind, alone) == now, f"bit {bit}"
    assert fell_back == refused > len(data) * 7  # except the name of the field crc


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", [b"{}", b"", b"[]", b"null", b'{"offretTable":{"a@b":{"0":1}}}', b'{"a":\xff}'])
def test_a_file_without_its_main_key_is_damaged(kind: str, content: bytes) -> None:
    """With or without a checksum: even an empty table has its main key."""
    if kind == "commits at a slave" and content == b"{}":
        return  # this file has no main key: an empty one is an empty table
    _, older = written(kind)
    before = loaded(kind, Files({PATH: older}))
    for data in {content, seal(content) if content.startswith(b"{") else content}:
        log = CapturedLog()
        assert loaded(kind, Files({PATH: data, PATH + BACKUP: older}), log) == before
        assert [event["event"] for event in log.events] == ["config_file_damaged"]
        with pytest.raises(CorruptRecord, match=r"t\.json"):
            loaded(kind, Files({PATH: data, PATH + BACKUP: data}))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_without_a_checksum_is_taken(kind: str) -> None:
    """RocketMQ and older versions write none; the next write has one."""
    data, _ = written(kind)
    log, files = CapturedLog(), Files({PATH: unseal(data)})
    assert b'"crc"' not in files.files[PATH]
    table = KINDS[kind][0]()
    file = persisted(table, files, log)
    assert file.load()
    assert state_of(kind, table) == loaded(kind, Files({PATH: data}))
    assert log.events == []
    KINDS[kind][1](table, 3)
    file.persist()
    assert b'"crc"' in files.files[PATH]
    assert files.files[PATH + BACKUP] == unseal(data)


def offsets_file() -> tuple[ConsumerOffsets, Files, CapturedLog, PersistedTable]:
    table, files, log = ConsumerOffsets(100), Files(), CapturedLog()
    file = persisted(table, files, log)
    for number in (1, 2):
        table.commit("group", "T", number, 17)
        file.persist()
    return table, files, log, file


def test_an_edited_file_keeps_its_edit() -> None:
    """Without the checksum the edit is used; with it the backup is, and an event is logged."""
    _, files, _, _ = offsets_file()
    edited = files.files[PATH].replace(b":17", b":99")
    again = ConsumerOffsets(100)
    persisted(again, Files({PATH: unseal(seal(unseal_by_hand(edited)))})).load()
    assert again.query("group", "T", 1) == 99
    files.files[PATH], log = edited, CapturedLog()
    again = ConsumerOffsets(100)
    assert persisted(again, files, log).load()
    assert again.query("group", "T", 1) == 17
    (event,) = log.events
    assert "edited by hand: then remove the field crc" in event["error"]
    assert files.files[event["kept_as"]] == edited


def unseal_by_hand(data: bytes) -> bytes:
    """Follow the hint."""
    return data[: data.rindex(b',"crc"')] + b"}"


def test_what_was_not_read_soundly_never_becomes_the_backup() -> None:
    """Neither a damaged file nor one edited while the broker ran becomes it."""
    table, files, log, file = offsets_file()
    backup = files.files[PATH + BACKUP]
    files.files[PATH] = damaged = files.files[PATH].replace(b"offsetTable", b"offretTable")
    table.commit("group", "T", 3, 17)
    assert file.persist()
    assert files.files[PATH + BACKUP] == backup
    assert files.files[PATH + DAMAGED + "1"] == damaged
    assert [event["event"] for event in log.events] == ["config_file_damaged"]
    sound = files.files[PATH]
    table.commit("group", "T", 4, 17)
    file.persist()
    assert files.files[PATH + BACKUP] == sound


def test_the_copies_set_aside_are_bounded() -> None:
    """The newest copies stay."""
    table, files, _, file = offsets_file()
    for number in range(KEPT_MAX + 3):
        files.files[PATH] = b"%d" % number
        table.commit("group", "T", 0, number)
        file.persist()
    kept = {name: data for name, data in files.files.items() if DAMAGED in name}
    assert kept == {f"{PATH}{DAMAGED}{number + 1}": b"%d" % number for number in range(3, KEPT_MAX + 3)}


def test_a_backup_that_is_taken_because_the_file_is_missing_is_reported() -> None:
    """RocketMQ's own save may leave only a backup; each use of one is logged."""
    _, files, _, _ = offsets_file()
    del files.files[PATH]
    log, again = CapturedLog(), ConsumerOffsets(100)
    assert persisted(again, files, log).load()
    assert len(again) == 1
    (event,) = log.events
    assert (event["event"], event["error"], event["kept_as"]) == ("config_file_damaged", "it is not there", "")


def test_a_new_store_has_no_files_and_no_events() -> None:
    """A missing file is no damage."""
    log = CapturedLog()
    assert not persisted(ConsumerOffsets(100), Files(), log).load()
    assert log.events == []


# ---- numbers


@pytest.mark.parametrize(
    "wrong", [b'"perm":16', b'"perm":-1', b'"readQueueNums":-4', b'"writeQueueNums":70000', b'"readQueueNums":70000']
)
def test_numbers_of_a_topic_are_those_of_a_request(wrong: bytes) -> None:
    """One wrong topic makes the whole file damaged: skipping the topic would lose it."""
    table = TopicTable(BrokerConfig(), ManualClock())
    topics = b'{"topicConfigTable":{"T":{"topicName":"T",%b}}}'
    with pytest.raises(msgspec.ValidationError, match="T"):
        table.load(topics % wrong)
    assert table.get("T") is None
    table.load(topics % b'"perm":7,"readQueueNums":65536,"writeQueueNums":0')
    assert table.get("T") is not None


@pytest.mark.parametrize("nums", [-5, 0, 1, 65_536, 1 << 40])
def test_what_a_table_takes_it_also_reads(nums: int) -> None:
    """A group may ask for any number of retry queues: its topic must not stop the next start."""
    table = TopicTable(BrokerConfig(), ManualClock())
    assert 0 <= table.create("%RETRY%group", nums).read_queue_nums <= 65_536
    again = TopicTable(BrokerConfig(), ManualClock())
    again.load(table.encode())
    assert again.get("%RETRY%group") == table.get("%RETRY%group")


def test_single_bad_offsets_are_left_out_and_reported() -> None:
    """RocketMQ does not check commits: its files, and their backups, may hold -1."""
    log = CapturedLog()
    table = ConsumerOffsets(100, log)
    table.load(b'{"offsetTable":{"T@g":{"0":-1,"1":5,"-7":3,"2":99999999999999999999}}}')
    assert table.of("g", "T") == {1: 5}
    assert len(table) == 1
    (event,) = log.events
    assert (event["event"], event["entries"]) == ("consumer_offsets_skipped", 3)


# ---- the checksum


def test_a_seal_is_the_last_field_and_comes_off_again() -> None:
    """This holds for empty objects, objects with a field of that name, and trailing space."""
    for content in (b"{}", b'{"a":1}', b'{"crc":5,"a":1}', b'{"a":{"crc":5}}', b'{"a":1,"crc":5}'):
        sealed = seal(content)
        assert unseal(sealed) == content
        assert unseal(sealed + b"\n") == content
        assert msgspec.json.decode(sealed)["crc"] != 5
    assert seal(b'{"a":1}') == b'{"a":1,"crc":2801990766}'
    assert unseal(b'{"a":{"crc":5}}') == b'{"a":{"crc":5}}'
    for wrong in (
        b'{"a":1,"crc":5}',
        b'{"a":2,"crc":2801990766}',
        b'{\n "a": 1,\n "crc": 2801990766\n}\n',
        b'{"crc":5}',
    ):
        with pytest.raises(BytesIllegal, match="remove the field crc"):
            unseal(wrong)


# ---- files of the store and the name server

PATHS = StorePaths("/store")


def test_a_flipped_bit_of_the_deleted_topics_is_noticed() -> None:
    """Without the list, deleted messages could return: the start is refused."""
    files: Any = Files()
    DeletedTopics(files, PATHS.deleted_topics).add("Orders", 1 << 20)
    data = files.files[PATHS.deleted_topics]
    for bit, flipped in flips(data):
        again = DeletedTopics(Files({PATHS.deleted_topics: flipped}), PATHS.deleted_topics)  # type: ignore[arg-type]
        why = refusal(partial(again.load, 0), CorruptRecord)
        if why:
            assert PATHS.deleted_topics in why
        else:
            assert again.table() == {"Orders": 1 << 20}, f"bit {bit}"
    old: Any = Files({PATHS.deleted_topics: b'{"Orders":7}'})
    again = DeletedTopics(old, PATHS.deleted_topics)
    again.load(0)
    assert again.table() == {"Orders": 7}


def test_a_flipped_bit_of_the_list_of_damage_is_noticed() -> None:
    """The whole log is then verified again."""
    files: Any = Files()
    known = [DamagedRange(100, 200, "it is no record"), DamagedRange(300, 420, "its CRC does not fit")]
    write_damage(files, PATHS, known)
    for bit, flipped in flips(files.files[PATHS.damage]):
        log, damaged = CapturedLog(), Files({PATHS.damage: flipped})
        if damage_is_unread(damaged, PATHS, log):  # type: ignore[arg-type]
            assert [event["event"] for event in log.events] == ["config_file_damaged"]
        else:
            assert read_damage(damaged, PATHS) == known, f"bit {bit}"  # type: ignore[arg-type]
    old: Any = Files({PATHS.damage: msgspec.json.encode(known)})
    assert not damage_is_unread(old, PATHS, NullLog())
    assert read_damage(old, PATHS) == known


def test_a_flipped_bit_of_the_positions_is_noticed() -> None:
    """Recovery then begins further back."""
    positions = Positions(clean=True, segment_bytes=8192, end_offset=400, recover_offset=300)
    for bit, flipped in flips(positions.encode()):
        assert Positions.decode(flipped) in (None, positions), f"bit {bit}"


def test_a_flipped_bit_of_the_state_of_replication_is_refused() -> None:
    """A guess could break a promise, and so could an older state."""
    files: Any = Files()

    def state(disk: Any) -> HaState:
        return HaState(disk, PATHS, ManualClock(), lambda count: bytes(range(count)))

    whole = state(files)
    whole.load()
    for bit, flipped in flips(files.files[whole.path]):
        again = state(Files({whole.path: flipped}))
        why = refusal(again.load, CorruptStore)
        if why:
            assert whole.path in why
        else:
            assert again._content == whole._content, f"bit {bit}"


@pytest.mark.slow
def test_a_flipped_bit_of_the_epochs_is_refused(tmp_path: Path) -> None:
    """An older epoch would let a replaced master return; so would a missing one."""
    records = {"broker-a": EpochRecord(65_537, "node.1", "10.0.0.1:10911", "SYNC_MASTER")}
    file = EpochFile(str(tmp_path))
    file.save(msgspec.json.encode(records))
    data = file.path.read_bytes()
    for bit, flipped in [*flips(data), (-1, b""), (-1, b"[]")]:
        file.path.write_bytes(flipped)
        store = EpochStore(10, str(tmp_path), NullLog())
        why = refusal(store.load, EpochsUnreadable)
        if why:
            assert str(file.path) in why
        else:
            assert store.table.records == records, f"bit {bit}"
    for content in (msgspec.json.encode(records), data):  # one of an older version, and ours
        file.path.write_bytes(content)
        store = EpochStore(10, str(tmp_path), NullLog())
        store.load()
        assert store.table.records == records


def test_the_directory_of_the_epochs_is_made_again(tmp_path: Path) -> None:
    """A confirmed claim is on disk."""
    file = EpochFile(str(tmp_path / "a" / "b"))
    file.save(b"{}")
    file.path.unlink()
    file.path.parent.rmdir()
    file.save(b"{}")
    assert file.load() == b"{}"
