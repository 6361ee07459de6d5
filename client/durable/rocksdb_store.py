"""A retry store in an embedded RocksDB (``rocksdict``, extra ``durable-retry``): the default.

Lives here: ``RocksDBStore``, its keys and values.

Keys (raw bytes, numbers big endian, so that RocksDB's order is ours):

    m · seq u64                             payload of an entry that waits
    d · due_ms u64 · seq u64                attempts u32 · size u32                no lane: by its due time
    o · lane length u16 · lane · seq u64    attempts u32 · size u32 · order key    of a lane: by its position
    g · seq u64                             msgpack (due_ms, attempts, lane, order key, why, payload), given up

A write is one RocksDB batch, all or nothing. The kernel has its write-ahead log when ``write`` returns: the end of the
process, kill -9 included, loses nothing; a power loss may, unless ``sync``.
"""

import os
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.durable.entry import UNROUTED, Entry, decode_kept, entry_bytes, lane_of
from pocketmq.client.durable.errors import (
    RetryStoreCorrupt,
    RetryStoreError,
    RetryStoreFull,
    RetryStoreLocked,
    RetryStoreUnreachable,
)
from pocketmq.client.durable.store import Changes, Summary
from pocketmq.client.libraries import library, translated
from pocketmq.common.clock import Clock
from pocketmq.common.errors import DECODE_ERRORS

if TYPE_CHECKING:
    from rocksdict import Options, Rdict

WRITE_BUFFER_BYTES: Final = 16 << 20
INDEX_ENTRIES: Final = 500
"""Index entries restored by one write of a repair."""
SCATTERED_SHARE: Final = 4
"""With more than one gap in so many entries, they are fetched together (3 µs each) instead of sought one by one (7
µs)."""
DYING_MS: Final = 2_000
"""How long the system may take to close the files of a killed process, and with them its lock."""
_U64 = struct.Struct(">Q")
_DUE = struct.Struct(">cQQ")
_COUNTS = struct.Struct(">II")


class RocksDBStore:
    """One directory, owned by one process through RocksDB's lock file."""

    def __init__(self, path: str, *, sync: bool, clock: Clock) -> None:
        self._rocksdict = rocksdict = library("rocksdict", "durable-retry", "retry store refused")
        self._guard = partial(translated, (Exception,), self._translated)  # rocksdict raises bare exceptions
        self._path = os.path.abspath(path)
        self._clock = clock
        self._db: Rdict | None = None
        self._locked_ns: int | None = None
        """When another process's lock was first seen since the directory was last open."""
        self._write_options = rocksdict.WriteOptions()
        self._write_options.sync = sync
        self._sync = sync

    @property
    def name(self) -> str:
        """The URL."""
        return f"rocksdb://{self._path}"

    @property
    def durability(self) -> str:
        """What a written entry survives."""
        if self._sync:
            return (
                "kept in RocksDB on this machine's disk and synced: it survives the end of the process and a power loss"
            )
        return "kept in RocksDB on this machine's disk: it survives the end of the process, a power loss may lose it"

    def _options(self) -> "Options":
        kinds = self._rocksdict
        options: Options = kinds.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_paranoid_checks(True)
        # a power loss leaves a torn end; any other damage in the log must be reported, not cut off
        options.set_wal_recovery_mode(kinds.DBRecoveryMode.tolerate_corrupted_tail_records())
        options.set_write_buffer_size(WRITE_BUFFER_BYTES)
        options.set_max_write_buffer_number(3)
        options.set_max_background_jobs(2)
        options.set_compression_type(kinds.DBCompressionType.lz4())
        options.set_max_open_files(256)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1 << 20)
        table = kinds.BlockBasedOptions()
        table.set_block_cache(kinds.Cache(8 << 20))
        options.set_block_based_table_factory(table)
        return options

    # -- life --------------------------------------------------------------------------------------------------

    def open(self, *, read_only: bool = False) -> Summary:
        """Open the directory and count its entries.

        Raises ``RetryStoreLocked`` while another process has its lock, which ends with that process.
        """
        assert self._db is None
        kinds = self._rocksdict
        try:
            with self._guard("retry store not opened"):
                if read_only:
                    if not os.path.isdir(self._path):
                        raise RetryStoreUnreachable("retry store not opened", why=f"{self._path} does not exist")
                    access = kinds.AccessType.read_only(False)
                    self._db = kinds.Rdict(self._path, self._options(), access_type=access)
                else:
                    os.makedirs(self._path, mode=0o700, exist_ok=True)
                    self._db = kinds.Rdict(self._path, self._options())
                self._locked_ns = None
                return self._summary()
        except RetryStoreError:
            self.close()
            raise

    def _summary(self) -> Summary:
        summary = Summary()
        for key, value in self._range(b"d", b"e"):
            _, _, seq = _DUE.unpack(key)
            summary.add(seq, entry_bytes(_COUNTS.unpack(value)[1], ""), "", "")
        for key, value in self._range(b"o", b"p"):
            lane, seq = _lane_key(key)
            order_key = value[8:].decode()
            summary.add(seq, entry_bytes(_COUNTS.unpack_from(value)[1], order_key), lane, order_key)
        for key, value in self._range(b"g", b"h"):
            summary.add_given_up(_U64.unpack_from(key, 1)[0], len(value))
        return summary

    def close(self) -> None:
        """Close the directory and give its lock back."""
        db, self._db = self._db, None
        if db is not None:
            try:
                db.close()
            except Exception:  # nothing depends on it: the log has every write
                pass

    def keep_alive(self) -> None:
        """Do nothing: the lock file is ours while the process lives."""

    def repair(self) -> str:
        """Let RocksDB rebuild what it can; where the result cannot be opened either, move the directory aside."""
        self.close()
        try:
            self._rocksdict.Rdict.repair(self._path, self._options())
            self.open()
            self._verify()
            found = self._index_again()
        except Exception as error:
            self.close()
            known = error if isinstance(error, RetryStoreError) else self._translated("retry store not repaired", error)
            if isinstance(known, RetryStoreLocked | RetryStoreFull):  # a new directory would not cure it
                raise known from error
            why = str(error)
        else:
            self.close()
            said = "repaired in place; unreadable files are in its folder lost/"
            return f"{said}; {found} messages had lost their index entry and are resent now" if found else said
        aside = f"{self._path}.corrupt-{self._clock.now_ms()}"
        try:
            os.rename(self._path, aside)
        except OSError as error:
            raise RetryStoreCorrupt("retry store not repaired", why=f"{why}; not moved aside: {error}") from error
        return f"moved aside to {aside}, its messages are NOT resent ({why}); a new, empty one is begun"

    def _index_again(self) -> int:
        """Index the payloads whose index entries a repair lost with a file; return how many."""
        seqs = array("Q", sorted(self._indexed()))
        now_ms, found = self._clock.now_ms(), 0
        lost: list[Entry] = []
        for key, payload in self._range(b"m", b"n"):
            seq = _U64.unpack_from(key, 1)[0]
            at = bisect_left(seqs, seq)
            if at < len(seqs) and seqs[at] == seq:
                continue
            lane = order_key = ""
            try:
                kept = decode_kept(payload)
            except RetryStoreError:  # the resender gives it up and logs it
                pass
            else:
                order_key = kept.order_key
                if order_key:
                    lane = lane_of(kept.queue or MessageQueue(kept.topic, UNROUTED, -1))
            lost.append(Entry(seq, now_ms, 0, lane, order_key, payload))
            found += 1
            if len(lost) == INDEX_ENTRIES:
                self.write(Changes(added=lost))
                lost = []
        self.write(Changes(added=lost))
        return found

    def _indexed(self) -> Iterator[int]:
        for key, _ in self._range(b"d", b"e"):
            yield _DUE.unpack(key)[2]
        for key, _ in self._range(b"o", b"p"):
            yield _lane_key(key)[1]

    def _verify(self) -> None:
        """Read everything once."""
        for _ in self._range(b"", b"\xff"):
            pass

    # -- writing -----------------------------------------------------------------------------------------------

    def write(self, changes: Changes) -> None:
        """Write one batch."""
        db = self._opened()
        batch = self._rocksdict.WriteBatch(raw_mode=True)
        for entry in changes.added:
            batch[b"m" + _U64.pack(entry.seq)] = entry.payload
            self._put_index(batch, entry, entry.due_ms, entry.attempts)
        for entry in changes.removed:
            del batch[b"m" + _U64.pack(entry.seq)]
            del batch[_index_key(entry, entry.due_ms)]
        for entry, due_ms, attempts in changes.moved:
            if not entry.lane:
                del batch[_index_key(entry, entry.due_ms)]
            self._put_index(batch, entry, due_ms, attempts)
        for entry, why in changes.given_up:
            del batch[b"m" + _U64.pack(entry.seq)]
            del batch[_index_key(entry, entry.due_ms)]
            batch[b"g" + _U64.pack(entry.seq)] = msgspec.msgpack.encode(
                (entry.due_ms, entry.attempts, entry.lane, entry.order_key, why, entry.payload)
            )
        self._write(db, batch)

    def _write(self, db: "Rdict", batch: Any) -> None:
        with self._guard("retry store not written"):
            db.write(batch, self._write_options)

    @staticmethod
    def _put_index(batch: Any, entry: Entry, due_ms: int, attempts: int) -> None:
        value = _COUNTS.pack(attempts, len(entry.payload))
        batch[_index_key(entry, due_ms)] = value + entry.order_key.encode() if entry.lane else value

    # -- reading -----------------------------------------------------------------------------------------------

    def due(self, start: tuple[int, int], until_ms: int, count: int, size_bytes: int) -> list[Entry]:
        """Return entries without a lane."""
        heads: list[tuple[int, int, int]] = []
        for key, value in self._range(_DUE.pack(b"d", *start), _DUE.pack(b"d", until_ms + 1, 0)):
            if len(heads) >= count or size_bytes <= 0:
                break
            _, due_ms, seq = _DUE.unpack(key)
            attempts, payload_bytes = _COUNTS.unpack(value)
            heads.append((due_ms, seq, attempts))
            size_bytes -= entry_bytes(payload_bytes, "")
        payloads = self._payloads([seq for _, seq, _ in heads])
        return [
            Entry(seq, due_ms, attempts, "", "", payload)
            for (due_ms, seq, attempts), payload in zip(heads, payloads, strict=True)
        ]

    def first_due_ms(self, start: tuple[int, int]) -> int | None:
        """Return the due time of the first entry without a lane."""
        for key, _ in self._range(_DUE.pack(b"d", *start), b"e"):
            due_ms: int = _DUE.unpack(key)[1]
            return due_ms
        return None

    def lane(self, lane: str, start_seq: int, count: int, size_bytes: int) -> list[Entry]:
        """Return entries of a lane."""
        prefix = _lane_prefix(lane)
        heads: list[tuple[int, int, str]] = []
        for key, value in self._range(prefix + _U64.pack(start_seq), prefix + b"\xff" * 9):
            if len(heads) >= count or size_bytes <= 0:
                break
            attempts, payload_bytes = _COUNTS.unpack_from(value)
            order_key = value[8:].decode()
            heads.append((_U64.unpack_from(key, len(prefix))[0], attempts, order_key))
            size_bytes -= entry_bytes(payload_bytes, order_key)
        payloads = self._payloads([seq for seq, _, _ in heads])
        return [
            Entry(seq, 0, attempts, lane, order_key, payload)
            for (seq, attempts, order_key), payload in zip(heads, payloads, strict=True)
        ]

    def oldest_seq(self, start_seq: int) -> int:
        """Return the smallest seq of the waiting entries, from ``start_seq`` on: past the tombstones of removed
        ones."""
        for key, _ in self._range(b"m" + _U64.pack(start_seq), b"n"):
            seq: int = _U64.unpack_from(key, 1)[0]
            return seq
        return 0

    def given_up(self, start_seq: int, count: int) -> list[tuple[Entry, str]]:
        """Return entries that were given up."""
        found: list[tuple[Entry, str]] = []
        for key, value in self._range(b"g" + _U64.pack(start_seq), b"h"):
            if len(found) >= count:
                break
            due_ms, attempts, lane, order_key, why, payload = msgspec.msgpack.decode(
                value, type=tuple[int, int, str, str, str, bytes]
            )
            found.append((Entry(_U64.unpack_from(key, 1)[0], due_ms, attempts, lane, order_key, payload), why))
        return found

    def purge_given_up(self, entries: Sequence[Entry]) -> None:
        """Remove entries that were given up."""
        db = self._opened()
        batch = self._rocksdict.WriteBatch(raw_mode=True)
        for entry in entries:
            del batch[b"g" + _U64.pack(entry.seq)]
        self._write(db, batch)

    def _payloads(self, seqs: list[int]) -> list[bytes]:
        """Return the payloads of entries; adjacent ones cost a step each, not a lookup. An index entry without a
        payload (a repair may leave one) is read as damaged, not skipped.
        """
        if not seqs:
            return []
        if sum([right - left != 1 for left, right in pairwise(seqs)]) > len(seqs) // SCATTERED_SHARE:
            with self._guard("retry store not read"):
                values: Any = self._opened().get([b"m" + _U64.pack(seq) for seq in seqs])
                return [value or b"" for value in values]
        options = self._rocksdict.ReadOptions()
        options.set_iterate_upper_bound(b"n")
        found: list[bytes] = []
        with self._guard("retry store not read"):
            pairs = self._opened().iter(options)
            for seq in seqs:
                key = b"m" + _U64.pack(seq)
                if not pairs.valid() or pairs.key() != key:
                    pairs.seek(key)
                if pairs.valid() and pairs.key() == key:
                    found.append(pairs.value())
                    pairs.next()
                else:
                    pairs.status()
                    found.append(b"")
            pairs.status()
        return found

    def _range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs from ``start`` up to ``end``. The iterator is RocksDB's own reference to the open database:
        it must be gone before ``close``, so no caller keeps this generator."""
        kinds = self._rocksdict
        options = kinds.ReadOptions()
        options.set_iterate_upper_bound(end)
        try:
            pairs = self._opened().iter(options)
            pairs.seek(start)
            while pairs.valid():
                yield pairs.key(), pairs.value()
                pairs.next()
            pairs.status()  # an iterator that meets damage ends silently
        except RetryStoreError:
            raise
        except (struct.error, *DECODE_ERRORS) as error:
            raise RetryStoreCorrupt("retry store not read", why=str(error)) from error
        except Exception as error:
            raise self._translated("retry store not read", error) from error

    def _opened(self) -> "Rdict":
        if self._db is None:
            raise RetryStoreUnreachable("retry store not used", why=f"{self._path} is not open")
        return self._db

    def _dying_ms(self) -> int:
        """Return how long to wait for a process that may be about to end."""
        now_ns = self._clock.monotonic_ns()
        if self._locked_ns is None:
            self._locked_ns = now_ns
        return max(DYING_MS - (now_ns - self._locked_ns) // 1_000_000, 0)

    def _translated(self, what: str, error: Exception) -> RetryStoreError:
        """Return RocksDB's error (a bare ``Exception`` with a status in its text) as a typed one."""
        text = str(error)
        if "lock hold by current process" in text:
            hint = "give each producer a directory of its own"
            return RetryStoreLocked(what, why=text, hint=hint, owner="another producer of this process")
        if "LOCK:" in text:
            return RetryStoreLocked(
                what,
                why=text,
                hint=f"give each process a directory of its own; 'fuser {self._path}/LOCK' names the owner",
                owner="another process on this machine",
                left_ms=self._dying_ms(),
            )
        if text.startswith("Corruption") or "orrupt" in text or isinstance(error, struct.error):
            return RetryStoreCorrupt(what, why=text, hint="the next opening repairs it or moves it aside")
        if "No space left" in text or "Disk quota" in text:
            return RetryStoreFull(what, why=text, hint="free disk space")
        return RetryStoreUnreachable(what, why=text or type(error).__name__, hint=f"check {self._path}")


def _index_key(entry: Entry, due_ms: int) -> bytes:
    if entry.lane:
        return _lane_prefix(entry.lane) + _U64.pack(entry.seq)
    return _DUE.pack(b"d", due_ms, entry.seq)


def _lane_prefix(lane: str) -> bytes:
    data = lane.encode()
    return b"o" + len(data).to_bytes(2, "big") + data


def _lane_key(key: bytes) -> tuple[str, int]:
    end = 3 + int.from_bytes(key[1:3], "big")
    return key[3:end].decode(), _U64.unpack_from(key, end)[0]
