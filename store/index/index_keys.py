"""Which keys of which messages go into the index, as columns.

Lives here: the hash of ``topic#key`` for unique keys (in columns) and for KEYS values, in the order RocketMQ inserts
them.

For each record, in log order: its UNIQ_KEY, then each of its space-separated KEYS; ROLLBACK records have none
(RocketMQ IndexService.buildIndex).
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.hashes import hash_rows, java_hash_columns, java_string_hash
from pocketmq.store.commitlog.group_feed import LogColumns

UNIQ_KEY_BYTES: Final = 32
_MASK: Final = 0xFFFF_FFFF
_PREFIXES_MAX: Final = 65_536
_COLUMN_KEY_BYTES_MAX: Final = 64
_POWERS: Final = np.array([pow(31, n, 1 << 32) for n in range(_COLUMN_KEY_BYTES_MAX + 1)], np.uint32)

Int64s = NDArray[np.int64]


def index_hash(topic: str, key: str) -> int:
    """Return the hash of a key as the index holds it: ``|hashCode(topic#key)|``, 0 for the one that has no absolute
    value.
    """
    value = abs(java_string_hash(f"{topic}#{key}"))
    return 0 if value > 0x7FFF_FFFF else value


def split_keys(value: bytes) -> list[bytes]:
    """Return the keys in a KEYS property: separated by spaces, empty ones dropped."""
    return [key for key in value.split(b" ") if key]


class KeyHasher:
    """Makes columns of (hash, physical offset, store timestamp) from dispatched columns; remembers the hashes of
    topics.
    """

    def __init__(self) -> None:
        self._prefixes: dict[str, int] = {}

    def _prefix(self, topic: str) -> int:
        """Return hashCode of ``topic#``, unsigned."""
        value = self._prefixes.get(topic)
        if value is None:
            value = java_string_hash(topic + "#") & _MASK
            if len(self._prefixes) >= _PREFIXES_MAX:
                self._prefixes.clear()
            self._prefixes[topic] = value
        return value

    def columns(self, groups: Sequence[LogColumns]) -> tuple[Int64s, Int64s, Int64s]:
        """Return hashes, physical offsets and store timestamps (ms) of all keys of these groups, in insertion order."""
        counts: list[int] = []
        prefixes: list[int] = []
        for group in groups:
            for section in group.sections:
                counts.append(section.count)
                prefixes.append(self._prefix(section.topic))
        if len(groups) == 1:
            offsets, times = groups[0].physical_offsets, groups[0].timestamps()
        else:
            offsets = np.concatenate([group.physical_offsets for group in groups])
            times = np.concatenate([group.timestamps() for group in groups])
        row_prefixes = np.repeat(np.array(prefixes, np.uint32), counts)
        unsigned, has_key = self._uniq(groups, row_prefixes)
        extra_rows, extra_hashes = self._extra(groups, row_prefixes)
        if extra_rows is None or extra_hashes is None:
            rows = None if has_key.all() else np.flatnonzero(has_key)
            hashes = unsigned if rows is None else unsigned[rows]
        else:
            uniq_rows = np.flatnonzero(has_key)
            rows = np.concatenate([uniq_rows, extra_rows])
            order = np.argsort(rows, kind="stable")  # within a record: its unique key, then the others as they stand
            rows = rows[order]
            hashes = np.concatenate([unsigned[uniq_rows], extra_hashes])[order]
        signed = np.abs(hashes.view(np.int32).astype(np.int64))
        signed[signed > 0x7FFF_FFFF] = 0
        return (signed, offsets, times) if rows is None else (signed, offsets[rows], times[rows])

    def _uniq(
        self, groups: Sequence[LogColumns], prefixes: NDArray[np.uint32]
    ) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
        """Return the hashes of all rows' 32-byte unique keys, and which rows have one that is indexed."""
        parts = [
            np.zeros((group.count, UNIQ_KEY_BYTES), np.uint8) if group.uniq_keys is None else group.uniq_keys
            for group in groups
        ]
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        hashes = hash_rows("", rows).view(np.uint32) + prefixes * _POWERS[UNIQ_KEY_BYTES]
        has_key = rows[:, 0] != 0
        if any(group.indexed is not None for group in groups):
            has_key &= np.concatenate(
                [np.ones(group.count, np.bool_) if group.indexed is None else group.indexed for group in groups]
            )
        return hashes, has_key

    def _extra(
        self, groups: Sequence[LogColumns], prefixes: NDArray[np.uint32]
    ) -> tuple[Int64s, NDArray[np.uint32]] | tuple[None, None]:
        """Return the rows and hashes of unique keys of other lengths and of KEYS, by record; (None, None) without
        any.
        """
        rows: list[int] = []
        keys: list[bytes] = []
        base = 0
        for group in groups:
            if group.keys is not None or group.other_uniq_keys:
                others = group.other_uniq_keys
                values: Sequence[bytes | None] = [None] * group.count if group.keys is None else group.keys
                for row, value in enumerate(values):
                    if value is None and row not in others:
                        continue
                    if group.indexed is not None and not group.indexed[row]:
                        continue
                    found = [others[row]] if row in others else []
                    if value is not None:
                        found += split_keys(value)
                    keys += found
                    rows += [base + row] * len(found)
            base += group.count
        if not rows:
            return None, None
        at = np.array(rows, np.int64)
        return at, self._hash_keys(keys, prefixes[at])

    @staticmethod
    def _hash_keys(keys: list[bytes], prefixes: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the hashes of ``topic#`` + key: short ASCII keys in columns, others one by one."""
        lengths = np.array([len(key) for key in keys], np.int64)
        joined = b"".join(keys)
        if joined.isascii() and int(lengths.max()) <= _COLUMN_KEY_BYTES_MAX:
            width = int(lengths.max())
            padded = b"".join([key.ljust(width, b"\0") for key in keys])
            matrix = np.frombuffer(padded, np.uint8).reshape(-1, width)
            hashes = java_hash_columns(matrix, lengths).view(np.uint32)
            return hashes + prefixes * _POWERS[lengths]
        out = np.empty(len(keys), np.uint32)
        for at, key in enumerate(keys):
            text = key.decode("utf-8", "replace")
            units = len(text.encode("utf-16-le", "surrogatepass")) // 2
            out[at] = (java_string_hash(text) + int(prefixes[at]) * pow(31, units, 1 << 32)) & _MASK
        return out
