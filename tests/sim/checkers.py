"""Rules for a store after any crash, and a store driven step by step that records its promises.

Lives here: ``Ledger`` (appended and acknowledged messages), ``check`` (acknowledged ⊆ readable, order per queue,
nothing invented, offsets never back), ``SimStore``.
"""

import posixpath
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.logs import CapturedLog
from pocketmq.common.record import KEYS
from pocketmq.common.record_codec import Record
from pocketmq.common.runner import SteppedRunner
from pocketmq.store.append_result import PutStatus
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore
from tests.sim.crash_file_system import BOOT_ID, CrashFileSystem
from tests.store.log_fakes import HOST, group_of, put, read_queue

ROOT: Final = "/data/store"
SEGMENT_BYTES: Final = 16_384
TOPICS: Final = ("A", "B")

Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


@dataclass(slots=True)
class Ledger:
    """The view of a client. ``sent``: every body ever appended, with its place if the store returned one.
    ``kill_safe``: messages that must survive ``kill -9``; ``power_safe``: messages that must survive a power cut.
    """

    sent: dict[bytes, Place | None] = field(default_factory=dict)
    keys: dict[bytes, str] = field(default_factory=dict)
    kill_safe: dict[Place, bytes] = field(default_factory=dict)
    power_safe: dict[Place, bytes] = field(default_factory=dict)
    number: int = 0
    only_kills: bool = True
    """No power cut so far."""

    def copy(self) -> "Ledger":
        return Ledger(
            dict(self.sent), dict(self.keys), dict(self.kill_safe), dict(self.power_safe), self.number, self.only_kills
        )

    def lost_power(self) -> None:
        """From here on only what survives a power cut was promised."""
        self.kill_safe = dict(self.power_safe)
        self.only_kills = False


def fresh_disk() -> CrashFileSystem:
    """Return a disk whose directory for stores is durable."""
    files = CrashFileSystem()
    for path in ("/data", "/dev/shm", posixpath.dirname(BOOT_ID)):
        files.make_dirs(path)
    files.open(BOOT_ID, create=True).write_at(0, b"00000001")
    files.sync_all("/")
    return files


class SimMemory:
    """A machine that locks all memory, and does not say how much it has."""

    def lock(self, array: object) -> None:
        pass

    def unlock(self, array: object) -> None:
        pass

    def copy(self, target: Any, at: int, data: Any) -> None:
        target[at : at + len(data)] = data

    def touch(self, array: object) -> None:
        pass

    def will_need(self, array: object) -> None:
        pass

    def free_bytes(self) -> int | None:
        return None


def sim_config(**changes: object) -> StoreConfig:
    small: dict[str, object] = {
        "store_path_root_dir": ROOT,
        "mapped_file_size_commit_log": SEGMENT_BYTES,
        "mapped_file_size_consume_queue": 20 * 32,
        "max_hash_slot_num": 16,
        "max_index_num": 256,
        "transient_store_pool_path": "anonymous",
    }
    return msgspec.convert(small | changes, StoreConfig)


class SimStore:
    """A real store on a simulated disk; the test steps its workers."""

    def __init__(
        self, files: CrashFileSystem, ledger: Ledger, clock: ManualClock | None = None, **changes: object
    ) -> None:
        self.files = files
        self.ledger = ledger
        self.clock = ManualClock() if clock is None else clock
        self.runner = SteppedRunner()
        self._in_buffers: list[tuple[int, dict[Place, bytes]]] = []
        self.config = sim_config(**changes)
        self.log = CapturedLog()
        self.store = MessageStore(
            self.config, file_system=files, clock=self.clock, runner=self.runner, memory=SimMemory(), log=self.log
        )
        self.store.store_host = HOST
        self.report = self.store.open()
        if ledger.only_kills:  # a kill tears only the last group
            assert self.report.damaged == self.report.suspect == []

    @property
    def is_sync(self) -> bool:
        return self.config.flush_disk_type == "SYNC_FLUSH"

    def append(self, sizes: list[int], topic: str = "A", queue_id: int = 0, *, key: str = "") -> None:
        """Append one group of messages with bodies of these sizes and acknowledge it by the settings."""
        ledger = self.ledger
        bodies = []
        for size in sizes:
            ledger.number += 1
            bodies.append(b"%d." % ledger.number + bytes([ledger.number % 251 + 1]) * size)
            ledger.sent[bodies[-1]] = None
            ledger.keys[bodies[-1]] = key
        result = self.store.append(group_of([put(body, topic, queue_id, key=key) for body in bodies]))
        if not result.status.is_stored:
            for body in bodies:
                del ledger.sent[body]
            return
        places = {(topic, queue_id, result.first_queue_offsets[0] + at): body for at, body in enumerate(bodies)}
        for place, body in places.items():
            ledger.sent[body] = place

        def done(status: PutStatus) -> None:
            if status is PutStatus.PUT_OK and self.store.pool is not None:
                if self.store.pool.survives:
                    ledger.kill_safe.update(places)
                self._in_buffers.append((result.end_offset, places))
                self._note_committed()
            elif status is PutStatus.PUT_OK:
                ledger.kill_safe.update(places)
                if self.is_sync:
                    ledger.power_safe.update(places)

        self.store.acknowledge(result.end_offset, True, done)

    def _note_committed(self) -> None:
        """Promise the bytes that have left the write buffers."""
        for end_offset, places in self._in_buffers:
            if end_offset <= self.store.log.committed_offset:
                self.ledger.kill_safe.update(places)
        self._in_buffers = [item for item in self._in_buffers if item[0] > self.store.log.committed_offset]

    def commit(self) -> None:
        """Write the buffers of the pool to the log."""
        if self.store.pool is not None:
            self.store.log.commit()
            self._note_committed()

    def _in_files(self) -> dict[Place, bytes]:
        """Return what was promised to survive a kill, and is in the log's files."""
        self._note_committed()
        found = dict(self.ledger.kill_safe)
        for _, places in self._in_buffers:
            for place in places:
                found.pop(place, None)
        return found

    def flush(self) -> None:
        """Sync the log: earlier messages are safe from a power cut now."""
        ledger = self.ledger
        before = self._in_files()
        flushed = self.store.log.flush()
        if flushed == self.store.log.committed_offset:
            ledger.power_safe.update(before)

    def step(self, name: str) -> None:
        """Let one worker take a step."""
        next(worker for worker in self.runner.workers if worker.name == name).step()
        if name == "group-commit":  # the other of the two workers answers the sends of a sync
            self.step("group-commit-watch")

    def checkpoint(self) -> None:
        before = self._in_files()
        self.store.checkpoint()
        self.ledger.power_safe.update(before)

    def close(self) -> None:
        before = dict(self.ledger.kill_safe)
        for _, places in self._in_buffers:
            before.update(places)
        self.store.close()
        self.ledger.kill_safe.update(before)
        self.ledger.power_safe.update(before)


def read_all(store: MessageStore) -> dict[tuple[str, int], list[Record]]:
    """Read every queue as a consumer does, from its min offset to its max offset."""
    return {(topic, queue_id): read_queue(store, topic, queue_id, 64) for topic, queue_id, _, _ in store.queues()}


def check(store: MessageStore, ledger: Ledger) -> dict[Place, bytes]:
    """Assert the four rules for an opened store; return the readable messages."""
    readable: dict[Place, bytes] = {}
    for (topic, queue_id), records in read_all(store).items():
        last = -1
        for record in records:
            place = (topic, queue_id, record.queue_offset)
            assert record.topic == topic, f"a message of {record.topic} in {topic}"
            assert record.queue_id == queue_id
            assert record.queue_offset > last, f"{place} behind offset {last}"
            last = record.queue_offset
            assert record.body in ledger.sent, f"invented: {record.body[:20]!r} at {place}"
            assert record.property_map().get(KEYS, "") == ledger.keys[record.body], f"other properties at {place}"
            told = ledger.sent[record.body]
            assert told is None or told == place, f"{record.body[:20]!r} was told {told}, is at {place}"
            assert record.body not in readable.values() or readable.get(place) == record.body, "a message twice"
            readable[place] = record.body
    for place, body in ledger.kill_safe.items():
        assert readable.get(place) == body, f"lost: {body[:20]!r} at {place}; there: {readable.get(place, b'')[:20]!r}"
    for topic, queue_id, _, max_offset in store.queues():
        told_end = max((offset for t, q, offset in ledger.kill_safe if (t, q) == (topic, queue_id)), default=-1)
        assert max_offset > told_end, f"the end of {topic}/{queue_id} went back to {max_offset}"
    return readable


def fingerprint(files: CrashFileSystem) -> dict[str, bytes]:
    """Return log, consume queues and index as they are on the disk; empty files and trailing segments do not count."""
    found = {}
    for path, data in files.image(ROOT).items():
        is_ours = "/commitlog/" in path or "/consumequeue/" in path or "/index/" in path
        if is_ours and any(data) and not path.endswith(".allocating"):
            found[path] = data
    return found


def close_quietly(sim: Any) -> None:
    """Close a store whose disk may fail."""
    try:
        sim.store.close()
    except PocketMQError:
        pass
