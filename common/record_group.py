"""The broker's input to the store: records back to back, and all facts about them that dispatch and index need.

Lives here: ``RecordGroup`` and its sections; built from the append (``common.plain_check``, or records of the scalar
codec) or again from stored bytes (recovery, dispatch that fell behind): both give equal columns.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.errors import MessageIllegal
from pocketmq.common.hashes import java_string_hash
from pocketmq.common.record import (
    KEYS,
    TAGS,
    TIMER_OUT_MS,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_NOT,
    TRANSACTION_ROLLBACK,
    UNIQ_KEY,
    decode_properties,
)
from pocketmq.common.record_columns import Bytes, Int64s, RecordColumns, parse_columns, starts_of, topic_ids
from pocketmq.common.topics import TIMER_TOPIC

UNIQ_KEY_BYTES: Final = 32
UNIQ_PREFIX: Final = b"UNIQ_KEY\x01"
UNIQ_PROPERTY_BYTES: Final = len(UNIQ_PREFIX) + UNIQ_KEY_BYTES + 1
"""42: the property UNIQ_KEY with its usual 32 hex digits."""
_TAILS_MAX: Final = 4096


@dataclass(slots=True)
class GroupSection:
    """A run of ``count`` records of one queue, beginning with the group's record ``first``."""

    topic: str
    queue_id: int
    first: int
    count: int


@dataclass(slots=True)
class RecordMeta:
    """The facts of one record from the scalar path. Empty bytes: no such property."""

    topic: str
    queue_id: int
    tags_code: int = 0
    uniq_key: bytes = b""
    keys: bytes = b""
    in_queue: bool = True
    indexed: bool = True


def record_meta(topic: str, queue_id: int, sys_flag: int, properties: Mapping[str, str]) -> RecordMeta:
    """Return the meta of a record with these fields.

    PREPARED and ROLLBACK records enter no consume queue; ROLLBACK is not indexed (RocketMQ CommitLogDispatcherBuild…).
    """
    kind = sys_flag & TRANSACTION_MASK
    return RecordMeta(
        topic=topic,
        queue_id=queue_id,
        tags_code=(
            timer_code_of(properties.get(TIMER_OUT_MS, ""))
            if topic == TIMER_TOPIC
            else tags_code_of(properties.get(TAGS, ""))
        ),
        uniq_key=properties.get(UNIQ_KEY, "").encode("utf-8", "replace"),
        keys=properties.get(KEYS, "").encode("utf-8", "replace"),
        in_queue=kind in (TRANSACTION_NOT, TRANSACTION_COMMIT),
        indexed=kind != TRANSACTION_ROLLBACK,
    )


def tags_code_of(tags: str) -> int:
    """Return the tags code of a consume-queue entry: the Java hash, 0 without tags."""
    return java_string_hash(tags) if tags else 0


def timer_code_of(due_ms: str) -> int:
    """Return the tags code of an entry of the timer's queue: when its message is due, in ms; 0 (now) where the property
    ``TIMER_OUT_MS`` is no time.
    """
    return int(due_ms) if due_ms.isascii() and due_ms.isdecimal() and len(due_ms) <= 18 else 0


class RecordGroup:
    """N records that are appended together.

    ``buffer``: uint8, exactly the records, private and writable. ``starts``, ``sizes``, ``tags_codes``: int64[N].
    ``sections``: cover 0..N in order, each a run of one queue; two sections may name the same queue.
    ``uniq_keys``: uint8[N, 32], or None when no record has a UNIQ_KEY of 32 ASCII bytes; a row of zeros: this record
    has none, or another kind in ``other_uniq_keys`` (index → bytes). ``keys``: the space-separated KEYS value of each
    record, or None when no record has one. ``indexed`` and ``in_queue``: bool[N], None for all true; a record not
    ``in_queue`` gets queue offset 0 and no consume-queue entry.

    The store fills after the append ``queue_offsets`` and ``physical_offsets`` (int64[N]) and ``store_timestamp`` (ms);
    ``from_log`` fills them too, and ``store_timestamps`` when its records have different ones.
    """

    __slots__ = (
        "buffer",
        "in_queue",
        "indexed",
        "keys",
        "other_uniq_keys",
        "physical_offsets",
        "queue_offsets",
        "sections",
        "sizes",
        "starts",
        "store_timestamp",
        "store_timestamps",
        "tags_codes",
        "uniq_keys",
    )

    def __init__(
        self,
        buffer: Bytes,
        starts: Int64s,
        sizes: Int64s,
        tags_codes: Int64s,
        sections: list[GroupSection],
        uniq_keys: Bytes | None = None,
        keys: list[bytes | None] | None = None,
        other_uniq_keys: dict[int, bytes] | None = None,
        indexed: NDArray[np.bool_] | None = None,
        in_queue: NDArray[np.bool_] | None = None,
    ) -> None:
        self.buffer = buffer
        self.starts = starts
        self.sizes = sizes
        self.tags_codes = tags_codes
        self.sections = sections
        self.uniq_keys = uniq_keys
        self.keys = keys
        self.other_uniq_keys: dict[int, bytes] = {} if other_uniq_keys is None else other_uniq_keys
        self.indexed = indexed
        self.in_queue = in_queue
        self.queue_offsets: Int64s | None = None
        self.physical_offsets: Int64s | None = None
        self.store_timestamp = 0
        self.store_timestamps: Int64s | None = None

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def size_bytes(self) -> int:
        """Bytes of all records."""
        return len(self.buffer)

    def store_times(self) -> Int64s:
        """Return the store timestamp of each record, ms."""
        if self.store_timestamps is not None:
            return self.store_timestamps
        return np.full(len(self), self.store_timestamp, np.int64)

    def record(self, index: int) -> Bytes:
        """Return a view of one record's bytes."""
        start = int(self.starts[index])
        return self.buffer[start : start + int(self.sizes[index])]

    @classmethod
    def from_records(
        cls, records: Sequence[bytes], metas: Sequence[RecordMeta], sections: list[GroupSection] | None = None
    ) -> "RecordGroup":
        """Return the group of records that ``encode_record`` made; copies them into one writable buffer.

        ``sections`` None: every run of one queue is a section; give them where an answer needs finer ones.
        """
        count = len(records)
        if count == 0 or len(metas) != count:
            raise MessageIllegal("no group", why=f"{count} records with {len(metas)} metas")
        buffer = np.frombuffer(bytearray(b"".join(records)), np.uint8)
        sizes = np.array([len(record) for record in records], np.int64)
        if sections is None:
            sections = _runs((meta.topic, meta.queue_id) for meta in metas)
        uniq_keys, others = uniq_key_rows([meta.uniq_key for meta in metas])
        keys: list[bytes | None] | None = None
        if any(meta.keys for meta in metas):
            keys = [meta.keys or None for meta in metas]
        indexed = in_queue = None
        if not all(meta.indexed for meta in metas):
            indexed = np.array([meta.indexed for meta in metas], np.bool_)
        if not all(meta.in_queue for meta in metas):
            in_queue = np.array([meta.in_queue for meta in metas], np.bool_)
        tags_codes = np.array([meta.tags_code for meta in metas], np.int64)
        return cls(buffer, starts_of(sizes), sizes, tags_codes, sections, uniq_keys, keys, others, indexed, in_queue)

    @classmethod
    def from_log(cls, buffer: Bytes) -> "RecordGroup":
        """Return the group of the stored records that fill ``buffer`` (no blanks): the same columns as at their append.

        Sections are the runs of one queue. Body CRCs are not checked. Raises ``CorruptRecord`` naming the record.
        """
        columns = parse_columns(buffer)
        group = cls(
            columns.buffer, columns.starts, columns.sizes, np.zeros(len(columns), np.int64), _log_sections(columns)
        )
        _read_properties(group, columns)
        kinds = columns.sys_flags & TRANSACTION_MASK
        if kinds.any():
            in_queue = (kinds == TRANSACTION_NOT) | (kinds == TRANSACTION_COMMIT)
            group.in_queue = None if in_queue.all() else in_queue
            indexed = kinds != TRANSACTION_ROLLBACK
            group.indexed = None if indexed.all() else indexed
        group.queue_offsets = columns.queue_offsets
        group.physical_offsets = columns.physical_offsets
        times = columns.store_timestamps
        if len(times):
            group.store_timestamp = int(times[-1])
            if (times != times[0]).any():
                group.store_timestamps = times
        return group

    def select(self, sections: Sequence[int]) -> "RecordGroup":
        """Return a new group of these sections (ascending positions in ``sections``), with a buffer of its own."""
        chosen = [self.sections[at] for at in sections]
        if not chosen:
            raise MessageIllegal("no group", why="no section is left")
        records = np.concatenate([np.arange(section.first, section.first + section.count) for section in chosen])
        parts = []
        for section in chosen:
            last = section.first + section.count - 1
            parts.append(self.buffer[int(self.starts[section.first]) : int(self.starts[last] + self.sizes[last])])
        renumbered: list[GroupSection] = []
        first = 0
        for section in chosen:
            renumbered.append(GroupSection(section.topic, section.queue_id, first, section.count))
            first += section.count
        sizes = self.sizes[records]
        keys = None if self.keys is None else [self.keys[at] for at in records.tolist()]
        if keys is not None and not any(keys):
            keys = None
        uniq_keys = None if self.uniq_keys is None else self.uniq_keys[records]
        if uniq_keys is not None and not uniq_keys.any():
            uniq_keys = None
        others = (
            {new: self.other_uniq_keys[old] for new, old in enumerate(records.tolist()) if old in self.other_uniq_keys}
            if self.other_uniq_keys
            else {}
        )
        return RecordGroup(
            np.concatenate(parts),
            starts_of(sizes),
            sizes,
            self.tags_codes[records],
            renumbered,
            uniq_keys,
            keys,
            others,
            _chosen(self.indexed, records),
            _chosen(self.in_queue, records),
        )

    @classmethod
    def concat(cls, groups: Sequence["RecordGroup"]) -> "RecordGroup":
        """Return one group of all records of ``groups`` in order, with a buffer of its own (one group: itself)."""
        if len(groups) == 1:
            return groups[0]
        if not groups:
            raise MessageIllegal("no group", why="no groups to join")
        sizes = np.concatenate([group.sizes for group in groups])
        sections: list[GroupSection] = []
        others: dict[int, bytes] = {}
        first = 0
        for group in groups:
            sections += [
                GroupSection(part.topic, part.queue_id, first + part.first, part.count) for part in group.sections
            ]
            others.update((first + at, key) for at, key in group.other_uniq_keys.items())
            first += len(group)
        uniq_keys: Bytes | None = None
        if any(group.uniq_keys is not None for group in groups):
            uniq_keys = np.concatenate(
                [
                    np.zeros((len(group), UNIQ_KEY_BYTES), np.uint8) if group.uniq_keys is None else group.uniq_keys
                    for group in groups
                ]
            )
        keys: list[bytes | None] | None = None
        if any(group.keys is not None for group in groups):
            keys = []
            for group in groups:
                keys += [None] * len(group) if group.keys is None else group.keys
        return cls(
            np.concatenate([group.buffer for group in groups]),
            starts_of(sizes),
            sizes,
            np.concatenate([group.tags_codes for group in groups]),
            sections,
            uniq_keys,
            keys,
            others,
            _joined([group.indexed for group in groups], groups),
            _joined([group.in_queue for group in groups], groups),
        )


def _chosen(flags: NDArray[np.bool_] | None, records: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    if flags is None or flags[records].all():
        return None
    return flags[records]


def _joined(flags: list[NDArray[np.bool_] | None], groups: Sequence[RecordGroup]) -> NDArray[np.bool_] | None:
    if all(part is None for part in flags):
        return None
    pairs = zip(flags, groups, strict=True)
    return np.concatenate([np.ones(len(group), np.bool_) if part is None else part for part, group in pairs])


def sections_of(counted: Iterable[tuple[str, int, int]]) -> list[GroupSection]:
    """Return the sections of (topic, queue id, records) in a row, each beginning where the one before it ends."""
    first = 0
    sections: list[GroupSection] = []
    for topic, queue_id, count in counted:
        sections.append(GroupSection(topic, queue_id, first, count))
        first += count
    return sections


def _runs(queues: Iterable[tuple[str, int]]) -> list[GroupSection]:
    """Return one section for each run of equal (topic, queue id)."""
    sections: list[GroupSection] = []
    last: tuple[str, int] | None = None
    for index, queue in enumerate(queues):
        if queue == last:
            sections[-1].count += 1
        else:
            sections.append(GroupSection(queue[0], queue[1], index, 1))
            last = queue
    return sections


def _log_sections(columns: RecordColumns) -> list[GroupSection]:
    """Return the runs of one queue among stored records."""
    count = len(columns)
    if count == 0:
        return []
    ids, topics = topic_ids(columns.buffer, columns)
    queue_ids = columns.queue_ids
    changes = np.flatnonzero((ids[1:] != ids[:-1]) | (queue_ids[1:] != queue_ids[:-1])) + 1
    firsts = [0, *changes.tolist()]
    ends = [*firsts[1:], count]
    return [
        GroupSection(topics[int(ids[first])], int(queue_ids[first]), first, end - first)
        for first, end in zip(firsts, ends, strict=True)
    ]


def uniq_key_rows(uniq_keys: Sequence[bytes]) -> tuple[Bytes | None, dict[int, bytes]]:
    """Return (rows, others) as ``RecordGroup`` holds them; empty bytes: the record has no UNIQ_KEY."""
    joined = b"".join(uniq_keys)
    if (
        joined.isalnum()
        and len(joined) == UNIQ_KEY_BYTES * len(uniq_keys)
        and max(map(len, uniq_keys)) == UNIQ_KEY_BYTES
    ):
        return np.frombuffer(bytearray(joined), np.uint8).reshape(-1, UNIQ_KEY_BYTES), {}
    usual = [key for key in uniq_keys if len(key) == UNIQ_KEY_BYTES and key.isascii() and key[0]]
    if len(usual) == len(uniq_keys):
        rows = bytearray(b"".join(uniq_keys))
        return (np.frombuffer(rows, np.uint8).reshape(-1, UNIQ_KEY_BYTES) if rows else None), {}
    others: dict[int, bytes] = {}
    padded: list[bytes] = []
    none = bytes(UNIQ_KEY_BYTES)
    for at, key in enumerate(uniq_keys):
        if len(key) == UNIQ_KEY_BYTES and key.isascii() and key[0]:
            padded.append(key)
        else:
            padded.append(none)
            if key:
                others[at] = key
    if all(key is none for key in padded):
        return None, others
    return np.frombuffer(bytearray(b"".join(padded)), np.uint8).reshape(-1, UNIQ_KEY_BYTES), others


def cut_keys(tail: bytes) -> tuple[bytes, bytes] | None:
    """Return (``tail`` without its property KEYS, the keys), or None when there is no such whole, non-empty pair."""
    at = tail.find(b"KEYS\x01")
    if at < 0 or (at > 0 and tail[at - 1] != 2):
        return None
    end = tail.find(2, at + 5)
    if end <= at + 5:
        return None
    return tail[:at] + tail[end + 1 :], tail[at + 5 : end]


def _read_properties(group: RecordGroup, columns: RecordColumns) -> None:
    """Fill tags codes, unique keys and keys from the stored property strings; equal strings are parsed once."""
    count = len(columns)
    if count == 0:
        return
    view = columns.buffer.data
    starts = columns.property_starts
    spans = zip(starts.tolist(), (starts + columns.property_lengths).tolist(), strict=True)
    known: dict[bytes, int] = {}  # what follows UNIQ_KEY, without KEYS → tags code
    codes: list[int] = []
    uniq_keys: list[bytes] = []
    keys: list[bytes | None] = []
    for start, end in spans:
        text = view[start:end].tobytes()
        key: bytes | None = None
        if text.startswith(UNIQ_PREFIX) and text[41:42] == b"\x02" and text.find(2) == 41:
            tail = text[UNIQ_PROPERTY_BYTES:]
            code = known.get(tail)
            if code is None:
                cut = cut_keys(tail)
                if cut is not None and cut[1].isascii():
                    code, key = known.get(cut[0]), cut[1]
                    tail = cut[0]
                if code is None and tail.find(b"UNIQ_KEY\x01") < 0 and tail.find(b"KEYS\x01") < 0:
                    code = tags_code_of(decode_properties(tail).get(TAGS, ""))
                    if len(known) < _TAILS_MAX:
                        known[tail] = code
            uniq = text[len(UNIQ_PREFIX) : 41]
            if code is not None and uniq.isascii():
                codes.append(code)
                uniq_keys.append(uniq)
                keys.append(key)
                continue
        properties = decode_properties(text)
        codes.append(tags_code_of(properties.get(TAGS, "")))
        uniq_keys.append(properties.get(UNIQ_KEY, "").encode("utf-8", "replace"))
        keys.append(properties.get(KEYS, "").encode("utf-8", "replace") or None)
    group.tags_codes[:] = codes
    for section in group.sections:
        if section.topic == TIMER_TOPIC:
            for row in range(section.first, section.first + section.count):
                start = int(columns.property_starts[row])
                text = view[start : start + int(columns.property_lengths[row])].tobytes()
                group.tags_codes[row] = timer_code_of(decode_properties(text).get(TIMER_OUT_MS, ""))
    group.uniq_keys, group.other_uniq_keys = uniq_key_rows(uniq_keys)
    group.keys = keys if any(keys) else None
