"""Fixtures of the log's tests: groups of records, a store stepped by hand, a disk that fails on request."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from pocketmq.common.clock import ManualClock
from pocketmq.common.logs import CapturedLog
from pocketmq.common.record import encode_properties
from pocketmq.common.record_codec import Record, decode_record, encode_record
from pocketmq.common.record_group import GroupSection, RecordGroup, RecordMeta, record_meta
from pocketmq.common.runner import SteppedRunner
from pocketmq.store.commitlog.segment import GIL_HELD_COPY_BYTES_MAX
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.file_system import Bytes
from pocketmq.store.disk.os_file_system import OsFile, OsFileLock, OsFileSystem, OsMappedFile
from pocketmq.store.message_store import MessageStore
from pocketmq.store.opening import OpenPlan

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
SEGMENT_BYTES = 8192
Before = Callable[[str, str], None]


def put(
    body: bytes = b"x", topic: str = "T", queue_id: int = 0, sys_flag: int = 0, key: str = ""
) -> tuple[bytes, RecordMeta]:
    """Return one record in the form that the broker passes to the store."""
    properties = {"KEYS": key} if key else {}
    record = encode_record(
        topic,
        body,
        queue_id=queue_id,
        properties=encode_properties(properties),
        sys_flag=sys_flag,
        born_timestamp=1,
        born_host=HOST,
        store_host=bytes(8),
    )
    return record, record_meta(topic, queue_id, sys_flag, properties)


def group_of(puts: Sequence[tuple[bytes, RecordMeta]], sections: list[GroupSection] | None = None) -> RecordGroup:
    records, metas = zip(*puts, strict=True)
    return RecordGroup.from_records(list(records), list(metas), sections)


def bodies(*texts: bytes, topic: str = "T", queue_id: int = 0) -> RecordGroup:
    """Return a group of one queue with these bodies."""
    return group_of([put(text, topic, queue_id) for text in texts])


def read_queue(store: MessageStore, topic: str, queue_id: int = 0, max_messages: int = 1000) -> list[Record]:
    """Read a whole queue, as pulls do."""
    found: list[Record] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        got = store.get(topic, queue_id, offset, max_messages=max_messages, max_bytes=1 << 20)
        found += split(got.body, got.sizes)
        assert got.next_begin_offset > offset, f"a reader of {topic}/{queue_id} hangs at {offset}: {got.status}"
        offset = got.next_begin_offset
    return found


def store_config(root: Path, **changes: object) -> StoreConfig:
    small: dict[str, object] = {
        "store_path_root_dir": str(root),
        "mapped_file_size_commit_log": SEGMENT_BYTES,
        "mapped_file_size_consume_queue": 20 * 64,
        "max_hash_slot_num": 64,
        "max_index_num": 512,
        "transient_store_pool_path": "anonymous",
    }
    return msgspec.convert(small | changes, StoreConfig)


class Stepped:
    """A store whose workers step only on request."""

    errors_to: CapturedLog | None = None
    """Takes the store's trouble with the disk; None: ``log`` does."""

    def __init__(
        self,
        root: Path,
        file_system: OsFileSystem | None = None,
        **changes: object,
    ) -> None:
        """``plan``, among the changes: what ``open`` gets."""
        plan = changes.pop("plan", None)
        assert plan is None or isinstance(plan, OpenPlan)
        self.root = root
        self.clock = ManualClock()
        self.runner = SteppedRunner()
        self.log = CapturedLog()
        self.store = MessageStore(
            store_config(root, **changes),
            file_system=file_system,
            clock=self.clock,
            runner=self.runner,
            log=self.log,
            error_log=self.errors_to,
        )
        self.store.store_host = HOST
        self.report = self.store.open(plan=OpenPlan if plan is None else lambda: plan)

    def append(self, *texts: bytes, topic: str = "T", queue_id: int = 0) -> int:
        """Append one group, let the woken workers take their steps; return the group's end."""
        result = self.store.append(bodies(*texts, topic=topic, queue_id=queue_id))
        assert result.status.is_stored, result
        self.dispatch()
        return result.end_offset

    def dispatch(self) -> None:
        self.store.dispatcher.catch_up()

    def write_checksums(self) -> None:
        self.store.components.flush.write_checksums()

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        return [record.body for record in self.records(topic, queue_id)]

    def records(self, topic: str = "T", queue_id: int = 0) -> list[Record]:
        """Read a whole queue as a consumer does."""
        return read_queue(self.store, topic, queue_id, 100)


def split(body: NDArray[np.uint8], sizes: NDArray[np.uint32]) -> list[Record]:
    data, at, out = body.tobytes(), 0, []
    for size in sizes.tolist():
        out.append(decode_record(data[at : at + size]))
        at += size
    return out


def crashed_copy(root: Path, target: Path) -> Path:
    """Return the disk after ``kill -9`` at this moment: the files as the page cache has them."""
    shutil.copytree(root, target)
    return target


def log_bytes(root: Path) -> dict[str, bytes]:
    """Return the commit log's files."""
    return {path.name: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}


class HookedMap(OsMappedFile):
    before: Before

    def store(self, offset: int, data: Bytes) -> None:
        assert len(data) > GIL_HELD_COPY_BYTES_MAX, "a page that stalls would stop the whole process"
        self.before("store", self.path)
        super().store(offset, data)


class HookedFile(OsFile):
    """Calls ``before(operation, path)`` ahead of every change; an error that it raises is the disk's."""

    before: Before

    def write_at(self, offset: int, data: Bytes) -> None:
        self.before("write", self.path)
        super().write_at(offset, data)

    def reserve(self, size_bytes: int) -> None:
        self.before("reserve", self.path)
        super().reserve(size_bytes)

    def resize(self, size_bytes: int) -> None:
        self.before("resize", self.path)
        super().resize(size_bytes)

    def zero(self, offset: int, length: int) -> None:
        self.before("zero", self.path)
        super().zero(offset, length)

    def sync(self) -> None:
        self.before("sync", self.path)
        super().sync()

    def map(self) -> HookedMap:
        mapped = HookedMap(self._descriptor, self.size(), self.path)
        mapped.before = self.before
        return mapped


class HookedFileSystem(OsFileSystem):
    """The real disk with a hook ahead of every change; ``operations`` lists them all."""

    def __init__(self, hook: Before | None = None) -> None:
        super().__init__()
        self.hook = hook
        self.operations: list[tuple[str, str]] = []

    def before(self, operation: str, path: str) -> None:
        self.operations.append((operation, path))
        if self.hook is not None:
            self.hook(operation, path)

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> HookedFile:
        if create and not self.exists(path):
            self.before("create", path)
        plain = super().open(path, create=create, writable=writable)
        file = HookedFile(plain._descriptor, path, plain._libc)
        plain._descriptor = -1
        file.before = self.before
        return file

    def open_private(self, path: str, *, create: bool = False) -> HookedFile:
        if create:
            self.before("create", path)
        plain = super().open_private(path, create=create)
        file = HookedFile(plain._descriptor, path, plain._libc)
        plain._descriptor = -1
        file.before = self.before
        return file

    def remove(self, path: str) -> None:
        self.before("remove", path)
        super().remove(path)

    def rename(self, source: str, target: str) -> None:
        self.before("rename", target)
        super().rename(source, target)

    def sync_dir(self, path: str) -> None:
        self.before("sync_dir", path)
        super().sync_dir(path)

    def sync_all(self, path: str) -> None:
        self.before("sync_all", path)
        super().sync_all(path)

    def lock_file(self, path: str, holder: str) -> OsFileLock:
        return super().lock_file(path, holder)


class Killed(BaseException):
    """The process dies here."""
