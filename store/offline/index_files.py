"""RocketMQ's index files, read without trusting them.

Lives here: ``IndexReader``: the header, entries by number, entries of a range of the log, look-ups by chain; the
numbers of slots and entries of a file from its size.
"""

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.errors import StoreError
from pocketmq.store.index.index_file import HEADER_BYTES, INDEX_ENTRY, INDEX_ENTRY_BYTES, SLOT_BYTES

ROCKETMQ_SLOTS: Final = 5_000_000
ROCKETMQ_ENTRIES: Final = 20_000_000
CHAIN_STEPS_MAX: Final = 20_000
BLOCK_ENTRIES: Final = 1 << 16
_HEADER: Final = struct.Struct(">qqqqii")
_ENTRY: Final = struct.Struct(">iqii")


def geometry(size_bytes: int, known: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """Return (slots, entries) of an index file of this size, None if unknown.

    ``known``: numbers given by a user. Else RocketMQ's defaults, else four entries a slot, the ratio of RocketMQ's and
    our defaults.
    """
    for slots, entries in (known or (0, 0), (ROCKETMQ_SLOTS, ROCKETMQ_ENTRIES)):
        if slots > 0 and size_bytes == HEADER_BYTES + slots * SLOT_BYTES + entries * INDEX_ENTRY_BYTES:
            return slots, entries
    slots, rest = divmod(size_bytes - HEADER_BYTES, SLOT_BYTES + 4 * INDEX_ENTRY_BYTES)
    return (slots, 4 * slots) if rest == 0 and slots > 0 else None


class IndexReader:
    """One index file. Raises ``StoreError`` and ``FileNotFoundError`` from ``__init__`` when it cannot be read."""

    def __init__(self, file_system: FileSystem, path: str, slots: int, entries_max: int) -> None:
        self.path = path
        self.slots = slots
        self.entries_max = entries_max
        self._file = file_system.open(path, writable=False)
        header = self._file.read(0, HEADER_BYTES)
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            self.index_count,
        ) = _HEADER.unpack(header.ljust(HEADER_BYTES, b"\0"))

    @property
    def count(self) -> int:
        """Entries that the header counts, within what the file can hold; entry 0 is never used."""
        count: int = max(0, min(self.index_count, self.entries_max) - 1)
        return count

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def entries(self, first: int, count: int) -> NDArray[np.void]:
        """Return entries from number ``first`` (1 is the first) on; zeros behind the end of the file."""
        out = np.zeros(max(0, count) * INDEX_ENTRY_BYTES, np.uint8)
        if len(out):
            at = HEADER_BYTES + self.slots * SLOT_BYTES + first * INDEX_ENTRY_BYTES
            self._file.read_into(at, out)
        return out.view(INDEX_ENTRY)

    def number_at(self, offset: int) -> int:
        """Return the number of the first entry whose record is at or after ``offset`` (entries are in log order)."""
        low, high = 1, self.count + 1
        while low < high:
            middle = (low + high) // 2
            if int(self.entries(middle, 1)["offset"][0]) < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def lookup(self, key_hash: int) -> list[int]:
        """Return the physical offsets that the chain of this hash leads to.

        It may begin with entries beyond ``count``: a live broker has written them since.
        """
        raw = self._file.read(HEADER_BYTES + key_hash % self.slots * SLOT_BYTES, SLOT_BYTES)
        at = int.from_bytes(raw, "big", signed=True)
        found: list[int] = []
        for _ in range(CHAIN_STEPS_MAX):
            if not 0 < at < self.entries_max:
                break
            entry_hash, offset, _, previous = _ENTRY.unpack(self.entries(at, 1).tobytes())
            if entry_hash == key_hash:
                found.append(offset)
            if previous >= at:
                break
            at = previous
        return found


def open_index(file_system: FileSystem, path: str, size_bytes: int, known: tuple[int, int] | None) -> IndexReader | str:
    """Return a reader of the file, or why there is none."""
    numbers = geometry(size_bytes, known)
    if numbers is None:
        return f"{size_bytes} bytes: the numbers of slots and entries are not known"
    try:
        reader = IndexReader(file_system, path, *numbers)
    except FileNotFoundError:
        return "removed meanwhile"
    except StoreError as error:
        return error.why
    if not 0 <= reader.index_count <= reader.entries_max:
        reader.close()
        return f"its header counts {reader.index_count} entries of {reader.entries_max}"
    return reader
