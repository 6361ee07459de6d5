"""The key index against the log.

Lives here: ``IndexCheck``, which compares the keys of records with the entries for the same range of the log.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.record_group import RecordGroup
from pocketmq.store.commitlog.group_feed import LogColumns
from pocketmq.store.errors import StoreError
from pocketmq.store.index.index_keys import KeyHasher
from pocketmq.store.offline.index_files import IndexReader
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.report import IndexReport

LOOKUPS_A_CHUNK: Final = 8
_ENTRIES_SLACK: Final = 4096
_PAIR: Final = np.dtype([("offset", np.int64), ("key_hash", np.int64)])


class IndexCheck:
    """``see`` groups of records in log order (all, or a sample), ``finish`` once."""

    def __init__(self, reader: StoreReader, *, is_sample: bool) -> None:
        self._is_open = reader.layout.is_open
        self._hasher = KeyHasher()
        self._readers: list[IndexReader] = []
        self.report = IndexReport(files=len(reader.layout.index_files), is_sample=is_sample)
        for path, found in reader.index_readers():
            if isinstance(found, str):
                self.report.unreadable.append(f"{path}: {found}")
            elif found.count:
                self._readers.append(found)
                self.report.entries += found.count
            else:
                found.close()

    def see(self, group: RecordGroup) -> None:
        """Compare the keys of these records."""
        if not self._readers:
            return
        columns = LogColumns(group)
        hashes, offsets, _ = self._hasher.columns([columns])
        known = (offsets >= self._readers[0].begin_offset) & (offsets <= self._readers[-1].end_offset)
        behind = int(np.count_nonzero(offsets > self._readers[-1].end_offset))
        if self._is_open:
            self.report.pending += behind
        else:
            self.report.missing += behind
            self.report.checked += behind
        try:
            self._compare(hashes[known], offsets[known], columns.start, columns.end)
        except StoreError as error:
            self._give_up(error)

    def _compare(self, hashes: NDArray[np.int64], offsets: NDArray[np.int64], start: int, end: int) -> None:
        expected = _pairs(offsets, hashes)
        self.report.checked += len(expected)
        parts: list[NDArray[np.void]] = []
        for reader in self._readers:
            if reader.end_offset < start or reader.begin_offset >= end:
                continue
            first, stop = reader.number_at(start), reader.number_at(end)
            if stop - first > 16 * len(expected) + _ENTRIES_SLACK:
                self.report.wrong += 1  # the entries are unordered, or belong to another log
                stop = first
            entries = reader.entries(first, stop - first)
            parts.append(_pairs(entries["offset"].astype(np.int64), entries["key_hash"].astype(np.int64)))
            for row in np.linspace(0, len(entries) - 1, min(LOOKUPS_A_CHUNK, len(entries))).astype(int).tolist():
                if int(entries["offset"][row]) not in reader.lookup(int(entries["key_hash"][row])):
                    self.report.unreachable += 1
        found = np.concatenate(parts) if parts else np.empty(0, _PAIR)
        if len(found) == len(expected) and bool((found == expected).all()):
            return
        both, here = set(expected.tolist()), set(found.tolist())
        self.report.missing += len(both - here)
        self.report.wrong += len(here - both)

    def _give_up(self, error: StoreError) -> None:
        self.report.unreadable.append(error.why)
        self._readers.clear()

    def finish(self, end_offset: int) -> IndexReport:
        """Count entries beyond the end of the log, close the files."""
        try:
            for reader in self._readers:
                if reader.end_offset >= end_offset and not self._is_open:
                    self.report.beyond += reader.count + 1 - reader.number_at(end_offset)
        except StoreError as error:
            self._give_up(error)
        for reader in self._readers:
            reader.close()
        return self.report


def _pairs(offsets: NDArray[np.int64], hashes: NDArray[np.int64]) -> NDArray[np.void]:
    pairs = np.empty(len(offsets), _PAIR)
    pairs["offset"] = offsets
    pairs["key_hash"] = hashes
    return pairs
