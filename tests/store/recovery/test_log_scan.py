"""The fast check of records, compared with the one that explains faults."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.record import encode_properties
from pocketmq.common.record_codec import encode_record
from pocketmq.store.commitlog.segment import segment_name
from pocketmq.store.commitlog.segment_queue import SegmentQueue
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.recovery.log_scan import LogScan, good_run

SIZE = 4096
HOSTS = (bytes(8), bytes(20))


def record_at(offset: int, body: bytes, born: int, store: int, topic: str, key: str) -> bytes:
    return encode_record(
        topic,
        body,
        queue_id=1,
        properties=encode_properties({"KEYS": key} if key else {}),
        born_host=HOSTS[born],
        store_host=HOSTS[store],
        physical_offset=offset,
    )


RECORDS = st.lists(
    st.tuples(
        st.binary(max_size=60),
        st.integers(0, 1),
        st.integers(0, 1),
        st.sampled_from(["T", "a-longer_topic", "V" * 140]),
        st.sampled_from(["", "k"]),
    ),
    min_size=1,
    max_size=8,
)


def scan_of(root: Path, data: bytes, check_crc: bool = True) -> LogScan:
    (root / segment_name(SIZE)).write_bytes(data.ljust(SIZE, b"\0"))
    segments = SegmentQueue(OsFileSystem(), str(root), SIZE)
    segments.load()
    return LogScan(segments, None, check_crc=check_crc)


@given(RECORDS, st.booleans(), st.data())
def test_both_checks_agree_on_whole_and_on_changed_records(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[tuple[bytes, int, int, str, str]],
    check_crc: bool,
    data: st.DataObject,
) -> None:
    """The slow check accepts all records of the fast one; the fast one stops only where the slow one objects, at V2
    records, or at the end.
    """
    root = tmp_path_factory.mktemp("scan")
    log, starts = b"", []
    for parts in records:
        starts.append(SIZE + len(log))
        log += record_at(SIZE + len(log), *parts)
    if data.draw(st.booleans()):
        changed = bytearray(log)
        changed[data.draw(st.integers(0, len(log) - 1))] ^= data.draw(st.integers(1, 255))
        log = bytes(changed)
    scan = scan_of(root, log, check_crc)
    good = [at for at in starts if scan.is_record(at)]
    count, end, last, _ = good_run(memoryview(log), SIZE, SIZE + SIZE, check_crc)
    assert starts[:count] == good[:count]
    assert end == ([*starts, SIZE + len(log)])[count]
    assert last == (starts[count - 1] if count else SIZE)
    if count < len(starts) and starts[count] in good:
        assert len(records[count][3]) > 127 or count == len(records)


@given(RECORDS, st.integers(0, 7), st.data())
def test_whatever_one_record_becomes_the_others_are_found(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[tuple[bytes, int, int, str, str]],
    index: int,
    data: st.DataObject,
) -> None:
    """A record replaced by noise is cut when it is the last; else it is a damaged range between good neighbours."""
    root = tmp_path_factory.mktemp("scan")
    index %= len(records)
    parts: list[bytes] = []
    offset = SIZE
    for record in records:
        parts.append(record_at(offset, *record))
        offset += len(parts[-1])
    start = SIZE + sum(map(len, parts[:index]))
    end = start + len(parts[index])
    noise = np.random.default_rng(data.draw(st.integers(0, 1000))).bytes(len(parts[index]))
    parts[index] = noise
    result = scan_of(root, b"".join(parts)).run(SIZE)
    if index == len(records) - 1:
        assert (result.end_offset, result.damaged) == (start, [])
    else:
        assert [(part.start, part.end) for part in result.damaged] == [(start, end)]
        assert result.end_offset == offset
    assert result.walked_records == len(records) - 1
