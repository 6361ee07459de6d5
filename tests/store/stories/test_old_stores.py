"""Stores of earlier versions, in every store mode, stopped cleanly or killed: each is read, verified and continued."""

from pathlib import Path

import pytest

from pocketmq.common.record import COMPRESSED_FLAG, KEYS, UNIQ_KEY
from pocketmq.common.record_codec import decode_record
from pocketmq.store.message_store import MessageStore
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.verify import verify
from tests.store.log_fakes import bodies, store_config
from tests.store.old_stores import COMMITS, NAMES, OldStore, unpacked
from tests.store.stories.test_rocketmq_vectors import fields, files_below

KINDS = {f"{mode}-{state}" for mode in ("mapped", "written", "pool", "sync") for state in ("clean", "killed")}


@pytest.fixture(params=NAMES, ids="-".join)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> OldStore:
    """One unpacked store of an earlier version."""
    commit, name = request.param
    return unpacked(commit, name, tmp_path)


def opened(old: OldStore) -> MessageStore:
    store = MessageStore(store_config(old.directory, **old.settings))
    report = store.open()
    assert (report.kind == "clean") is (old.state == "clean")
    assert (report.cut_bytes, report.damaged) == (0, [])
    return store


def test_every_mode_and_state_is_kept() -> None:
    """No archive of any version was lost."""
    assert set(NAMES) == {(commit, kind) for commit in COMMITS for kind in KINDS}


def test_it_verifies_without_a_fault(old: OldStore) -> None:
    """Log, checksums, consume queues and index agree; no file is written."""
    before = files_below(old.directory)
    report = verify(StoreReader.open(str(old.directory)), level="full")
    assert report.ok, report
    assert (report.written_by, report.is_open) == ("PocketMQ", old.state == "killed")
    assert report.segments > 2
    assert report.queues is not None
    assert report.queues.good == report.queues.entries == len(old.messages)
    assert report.index is not None
    assert report.index.checked > len(old.of("orders"))
    assert files_below(old.directory) == before


def test_every_message_is_where_it_was(old: OldStore) -> None:
    """Each has its place and all of its fields; its keys and its unique id find it."""
    store = opened(old)
    try:
        ends = {(topic, queue_id): end for topic, queue_id, _, end in store.queues()}
        for seen in old.messages:
            got = store.get(seen["topic"], seen["queue_id"], seen["queue_offset"], max_messages=1, max_bytes=1 << 20)
            wanted = fields_of(seen)
            assert fields(decode_record(got.body.tobytes())) == wanted
            assert ends[seen["topic"], seen["queue_id"]] > seen["queue_offset"]
        assert sum(ends.values()) == len(old.messages)
        for seen in old.of("orders")[::5]:
            for name in (seen["properties"][UNIQ_KEY], *seen["properties"].get(KEYS, "").split()[:1]):
                found = [decode_record(each) for each in store.query("orders", name, 0, 1 << 60, 64)]
                assert seen["physical_offset"] in [each.physical_offset for each in found]
    finally:
        store.close()


def fields_of(seen: dict[str, object]) -> dict[str, object]:
    """Return the message's ``fields``; its body is not compressed there."""
    sys_flag = seen["sys_flag"]
    assert isinstance(sys_flag, int)
    return {**seen, "sys_flag": sys_flag & ~COMPRESSED_FLAG}


def test_a_new_message_goes_behind_and_the_store_stays_sound(old: OldStore) -> None:
    """Queue offsets and the log continue where the earlier version stopped, also after one more start."""
    store = opened(old)
    end = store.max_offset("orders", 1)
    assert end == len(old.of("orders", 1))
    assert store.append(bodies(b"new", topic="orders", queue_id=1)).status.is_stored
    store.close()
    after = verify(StoreReader.open(str(old.directory)), level="full")
    assert after.ok, after
    again = MessageStore(store_config(old.directory, **old.settings))
    assert again.open().kind == "clean"
    assert again.max_offset("orders", 1) == end + 1
    again.close()
