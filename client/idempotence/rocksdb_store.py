"""Marks in an embedded RocksDB: for one process; they survive its end.

Lives here: ``RocksStore``. Needs ``pip install 'pocketmq[rocksdb]'``.

Two column families: key -> state, time, owner; and time + key -> nothing, where expired marks come first.
"""

import asyncio
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from pocketmq.client.idempotence.store import Claim, MarkStoreFull, MarkStoreUnavailable
from pocketmq.client.libraries import library, translated

MAX_KEYS: Final = 10_000_000
PURGE_MAX: Final = 10_000
_MARK = struct.Struct(">BQQ")  # state, end of the lease or of the window, place in the second family
_TIME = struct.Struct(">Q")
_RUNNING, _DONE = 0, 1
_BY_TIME = "by_time"
T = TypeVar("T")


class RocksStore:
    """At most ``max_keys`` marks: beyond that the oldest done ones are forgotten early (``evicted`` counts those).

    ``sync``: wait for the disk with every write; without it a power loss, but not the end of the process, may lose the
    last marks. All work runs in a thread of its own.
    """

    def __init__(self, path: str | Path, *, max_keys: int = MAX_KEYS, sync: bool = False) -> None:
        self.evicted = 0
        self.max_keys = max_keys
        self._library = rocksdict = library("rocksdict", "rocksdb", "marks in RocksDB need a library")
        self._path = str(path)
        self._write_options: Any = rocksdict.WriteOptions()
        self._write_options.sync = sync
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pocketmq-marks")
        self._db: Any = None
        self._times: Any = None
        self._times_handle: Any = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    async def _run(self, what: str, work: Callable[[], T]) -> T:
        def guarded() -> T:
            with translated((Exception,), self._unavailable, what):  # rocksdict raises bare exceptions
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._thread, guarded)

    def _unavailable(self, what: str, error: Exception) -> MarkStoreUnavailable:
        why = f"{type(error).__name__}: {error}"
        return MarkStoreUnavailable(f"marks: {what}", why=why, hint=f"check {self._path}")

    async def open(self) -> None:
        """Open or make the database."""
        await self._run("not opened", self._open)

    def _open(self) -> None:
        if self._db is not None:
            return
        options = self._library.Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        families = {_BY_TIME: self._library.Options(raw_mode=True)}
        self._db = self._library.Rdict(self._path, options=options, column_families=families)
        self._db.set_write_options(self._write_options)
        self._times = self._db.get_column_family(_BY_TIME)
        self._times_handle = self._db.get_column_family_handle(_BY_TIME)
        self._count = sum(1 for _ in self._times.keys())  # noqa: SIM118

    async def claim(
        self, keys: Sequence[str], owner: str, now_ms: int, lease_ms: int, window_ms: int
    ) -> Sequence[Claim]:
        """Claim keys; all of them or, when the store is full, none."""
        return await self._run("not claimed", lambda: self._claim(keys, owner, now_ms, lease_ms, window_ms))

    def _claim(self, keys: Sequence[str], owner: str, now_ms: int, lease_ms: int, window_ms: int) -> list[Claim]:
        claims: list[Claim] = []
        batch = self._library.WriteBatch(raw_mode=True)
        added = 0
        until_ms = now_ms + lease_ms
        for key in map(str.encode, keys):
            found = self._db.get(key)
            claim = Claim.NEW
            if found is None:
                added += 1
            else:
                state, found_until_ms, place = _MARK.unpack_from(found)
                if found_until_ms > now_ms:
                    claim = Claim.DONE if state == _DONE else Claim.BUSY
                elif state == _RUNNING:
                    claim = Claim.TAKEN_OVER
                if claim.is_ours:
                    batch.delete(_TIME.pack(place) + key, self._times_handle)
            if claim.is_ours:
                self._put(batch, key, _RUNNING, until_ms, until_ms + window_ms, owner)
            claims.append(claim)
        self._make_room(added, {key.encode() for key in keys})
        self._db.write(batch, self._write_options)
        self._count += added
        return claims

    def _put(self, batch: Any, key: bytes, state: int, until_ms: int, place: int, owner: str) -> None:
        batch.put(key, _MARK.pack(state, until_ms, place) + owner.encode())
        batch.put(_TIME.pack(place) + key, b"", self._times_handle)

    def _make_room(self, added: int, kept: set[bytes]) -> None:
        excess = self._count + added - self.max_keys
        if excess <= 0:
            return
        evicted = self._remove(lambda key, mark: key not in kept and mark is not None and mark[0] == _DONE, excess)
        self.evicted += evicted
        if evicted < excess:
            raise MarkStoreFull(
                "message not claimed", why=f"{self._count} handlers run", hint="raise max_keys of RocksStore"
            )

    def _remove(self, chosen: Callable[[bytes, bytes | None], bool], count_max: int) -> int:
        """Remove up to ``count_max`` marks that are ``chosen``, oldest first."""
        batch = self._library.WriteBatch(raw_mode=True)
        removed = 0
        for entry in self._times.keys():  # noqa: SIM118
            if removed == count_max:
                break
            key = entry[_TIME.size :]
            if not chosen(key, self._db.get(key)):
                continue
            batch.delete(entry, self._times_handle)
            batch.delete(key)
            removed += 1
        self._db.write(batch, self._write_options)
        self._count -= removed
        return removed

    def _held(self, keys: Sequence[str], owner: str) -> list[tuple[bytes, int, int] | None]:
        """Return (key, end of the lease, place in time) of each key that is held, None for the others."""
        held: list[tuple[bytes, int, int] | None] = []
        for key in map(str.encode, keys):
            found = self._db.get(key)
            is_held = found is not None and found[0] == _RUNNING and found[_MARK.size :] == owner.encode()
            held.append((key, *_MARK.unpack_from(found)[1:]) if is_held else None)
        return held

    def _replace(self, keys: Sequence[str], owner: str, state: int, until_ms: int) -> list[bool]:
        batch = self._library.WriteBatch(raw_mode=True)
        held = self._held(keys, owner)
        for each in held:
            if each is not None:
                key, lease_end_ms, place = each
                batch.delete(_TIME.pack(place) + key, self._times_handle)
                # a claim whose owner died is also remembered for the window: its effect is unknown
                remembered_ms = until_ms if state == _DONE else until_ms + place - lease_end_ms
                self._put(batch, key, state, until_ms, remembered_ms, owner)
        self._db.write(batch, self._write_options)
        return [each is not None for each in held]

    async def renew(self, keys: Sequence[str], owner: str, now_ms: int, lease_ms: int) -> None:
        """Renew held claims."""
        until_ms = now_ms + lease_ms
        await self._run("not renewed", lambda: self._replace(keys, owner, _RUNNING, until_ms))

    async def finish(self, keys: Sequence[str], owner: str, now_ms: int, window_ms: int) -> Sequence[bool]:
        """Mark held claims as done."""
        until_ms = now_ms + window_ms
        return await self._run("not finished", lambda: self._replace(keys, owner, _DONE, until_ms))

    async def release(self, keys: Sequence[str], owner: str) -> None:
        """Forget held claims."""

        def release() -> None:
            batch = self._library.WriteBatch(raw_mode=True)
            for each in self._held(keys, owner):
                if each is not None:
                    batch.delete(_TIME.pack(each[2]) + each[0], self._times_handle)
                    batch.delete(each[0])
                    self._count -= 1
            self._db.write(batch, self._write_options)

        await self._run("not released", release)

    async def purge(self, now_ms: int) -> int:
        """Forget expired marks."""

        def purge() -> int:
            over = 0
            for entry in self._times.keys():  # noqa: SIM118
                if over == PURGE_MAX or _TIME.unpack_from(entry)[0] > now_ms:
                    break
                over += 1
            return self._remove(lambda key, mark: True, over)

        return await self._run("not purged", purge)

    async def close(self) -> None:
        """Close the database."""
        if self._db is not None:
            await self._run("not closed", self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        self._times = self._times_handle = None
        self._db.close()
        self._db = None
