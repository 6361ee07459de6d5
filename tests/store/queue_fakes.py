"""A commit log in memory with the reading side of the real one, for tests of its followers."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.hashes import java_string_hash
from pocketmq.common.record import BLANK_BYTES_MIN, MAGIC_BLANK, TRANSACTION_MASK, encode_properties
from pocketmq.common.record_codec import encode_record
from pocketmq.common.record_columns import patch
from pocketmq.common.record_group import RecordGroup, record_meta
from pocketmq.store.config import StoreConfig
from pocketmq.store.errors import OffsetOutOfRange

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
HOST_V6 = bytes(15) + b"\x01" + bytes([0, 0, 42, 159])
WALK_BYTES = 4096


@dataclass
class Put:
    """One message to append."""

    topic: str = "TopicTest"
    queue_id: int = 0
    body: bytes = b"x" * 20
    tags: str = ""
    keys: str = ""
    uniq_key: str = ""
    sys_flag: int = 0
    v6: bool = False


@dataclass
class MemoryLog:
    """Records in a bytearray, cut into segments with blank ends. ``auto_commit`` False leaves committing to the
    test.
    """

    segment_bytes: int = 1 << 16
    auto_commit: bool = True
    now_ms: int = 1_700_000_000_000
    data: bytearray = field(default_factory=bytearray)
    min_offset: int = 0
    committed_offset: int = 0
    reads: int = 0
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    groups: list[RecordGroup] = field(default_factory=list)

    @property
    def appended_offset(self) -> int:
        return len(self.data)

    def append(self, puts: Sequence[Put]) -> RecordGroup:
        """Append one group and return it with all fields set, as the real log does."""
        records, metas = [], []
        for put in puts:
            properties = {"UNIQ_KEY": put.uniq_key, "TAGS": put.tags, "KEYS": put.keys}
            properties = {name: value for name, value in properties.items() if value}
            host = HOST_V6 if put.v6 else HOST
            text = encode_properties(properties)
            records.append(
                encode_record(
                    put.topic,
                    put.body,
                    queue_id=put.queue_id,
                    properties=text,
                    sys_flag=put.sys_flag,
                    born_timestamp=self.now_ms - 5,
                    born_host=host,
                    store_host=HOST,
                )
            )
            metas.append(record_meta(put.topic, put.queue_id, put.sys_flag, properties))
        group = RecordGroup.from_records(records, metas)
        queue_offsets, physical_offsets = [], []
        for put, meta, size in zip(puts, metas, group.sizes.tolist(), strict=True):
            left = self.segment_bytes - len(self.data) % self.segment_bytes
            if size + BLANK_BYTES_MIN > left:
                self.data += left.to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big") + bytes(left - 8)
            physical_offsets.append(len(self.data))
            self.data += bytes(size)
            key = (put.topic, put.queue_id)
            queue_offsets.append(self.next_offsets.get(key, 0) if meta.in_queue else 0)
            if meta.in_queue:
                self.next_offsets[key] = queue_offsets[-1] + 1
        group.queue_offsets = np.array(queue_offsets, np.int64)
        group.physical_offsets = np.array(physical_offsets, np.int64)
        group.store_timestamp = self.now_ms
        patch(group, group.queue_offsets, group.physical_offsets, self.now_ms, HOST)
        for at, offset in enumerate(physical_offsets):
            record = group.record(at).tobytes()
            self.data[offset : offset + len(record)] = record
        if self.auto_commit:
            self.committed_offset = len(self.data)
        self.groups.append(group)
        return group

    def read_into(self, offset: int, out: NDArray[np.uint8]) -> None:
        self.reads += 1
        if offset < self.min_offset or offset + len(out) > self.committed_offset:
            raise OffsetOutOfRange("read refused", why=f"{offset} + {len(out)}")
        out[:] = np.frombuffer(bytes(self.data[offset : offset + len(out)]), np.uint8)

    def read(self, offset: int, length: int) -> NDArray[np.uint8]:
        out = np.empty(length, np.uint8)
        self.read_into(offset, out)
        return out

    def spans(self, from_offset: int, to_offset: int) -> Iterator[tuple[int, int]]:
        """Yield (offset, size) of the whole records in a range."""
        at = from_offset
        while at + 8 <= to_offset:
            size = int.from_bytes(self.data[at : at + 4], "big")
            if int.from_bytes(self.data[at + 4 : at + 8], "big") == MAGIC_BLANK:
                at += self.segment_bytes - at % self.segment_bytes
                continue
            if at + size > to_offset:
                return
            yield at, size
            at += size

    def walk(self, from_offset: int, to_offset: int) -> Iterator[RecordGroup]:
        assert to_offset <= self.committed_offset
        slices: list[list[int]] = []  # [start, end] of records back to back
        for offset, size in self.spans(from_offset, to_offset):
            if slices and slices[-1][1] == offset and slices[-1][1] - slices[-1][0] < WALK_BYTES:
                slices[-1][1] += size
            else:
                slices.append([offset, offset + size])
        for start, end in slices:
            yield RecordGroup.from_log(np.frombuffer(bytes(self.data[start:end]), np.uint8))

    def kind(self, offset: int) -> int:
        """Return the transaction type of the record at an offset."""
        return int.from_bytes(self.data[offset + 36 : offset + 40], "big") & TRANSACTION_MASK


def store_config(root: Path, **settings: object) -> StoreConfig:
    """Return small settings for a test."""
    values: dict[str, object] = {
        "store_path_root_dir": str(root),
        "mapped_file_size_commit_log": 1 << 16,
        "mapped_file_size_consume_queue": 100 * 20,
        "max_hash_slot_num": 1000,
        "max_index_num": 4000,
        **settings,
    }
    return StoreConfig(**values)  # type: ignore[arg-type]


def tree(root: Path) -> dict[str, bytes]:
    """Return every file below a directory with its bytes."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


_uniq = itertools.count(1)


def uniq_key() -> str:
    """Return another unique id of 32 characters."""
    return f"{next(_uniq):032X}"


def tags_code(tags: str) -> int:
    """Return the tags code of an entry."""
    return java_string_hash(tags) if tags else 0
