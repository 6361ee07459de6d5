"""Write buffers that outlive the process: named files in shared memory (ADR 0012).

Lives here: ``SurvivingPool``: makes the files of a run, reserves and locks them; binds a buffer to the bytes of the log
that it takes, releases it once the log's file has them; removes the files once the log has everything. What the next
start does with files that are left is in ``recovery.surviving_buffers``, the layout in ``buffer_header``.

The directory and its files belong to this user alone (0700, 0600). A program of the same user that cuts a file while it
is mapped kills the process (SIGBUS), as it would by cutting a segment: a seal that forbids it exists only for memory
without a name.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from msgspec.structs import replace as with_changes
from numpy.typing import NDArray

from pocketmq.common.errors import ConfigError
from pocketmq.store.commitlog.buffer_header import (
    BINDING,
    BOUND,
    COMMITTED,
    HEAD,
    HEADER_BYTES,
    IDENTITY_AT,
    PUBLISHED,
    RELEASED,
    WORDS,
    BufferIdentity,
    binding_check,
    binding_salt,
    run_salt,
    store_twice,
)
from pocketmq.store.commitlog.buffer_leftovers import leftovers
from pocketmq.store.commitlog.buffer_record import (
    ID_BYTES,
    LOCK,
    OWNER,
    BufferRecord,
    boot_id,
    directory_of,
    own_pid,
    process_start,
    read_record,
    remove_directory,
    write_record,
)
from pocketmq.store.commitlog.write_buffer_pool import WriteBuffer, WriteBufferPool, nothing
from pocketmq.store.config import PAGE_BYTES, SHARED_MEMORY
from pocketmq.store.disk.file_system import FileLock, StoreFile, Words
from pocketmq.store.disk.memory_lock import Memory, is_shared_memory
from pocketmq.store.environment import StoreEnvironment
from pocketmq.store.errors import StoreFull

ROOT_CHARS_MAX: Final = 512
_ROOM_FOR_NAMES_BYTES: Final = 4 * PAGE_BYTES
_ZERO_PLACES: Final = tuple(at + step for at in PUBLISHED for step in (0, 1))


class SurvivingPool(WriteBufferPool):
    """A pool of files below ``transient_store_pool_path``, one directory a run.

    ``open`` runs after the log has been recovered, so the files of a dead run are gone by then; ``survives`` is False
    afterwards only where the machine has no shared memory. ``epoch``: written into every later binding.
    """

    def __init__(self, environment: StoreEnvironment, memory: Memory, random_bytes: Callable[[int], bytes]) -> None:
        config = environment.config
        super().__init__(
            config.transient_store_pool_size, config.pool_buffer_bytes, memory, environment.clock, environment.log
        )
        self.base = config.transient_store_pool_path
        self.directory = ""
        self.is_shared_memory = False
        """The files are in memory, and not on a disk that a path leads to."""
        self._environment = environment
        self._files = environment.file_system
        self._random_bytes = random_bytes
        self._record: BufferRecord | None = None
        self._identity: BufferIdentity | None = None
        self._file_lock: FileLock | None = None
        self._owner: Words | None = None
        self._salt = 0
        self._number = 0

    @property
    def cannot_stall(self) -> bool:
        """Whether the buffers are open, in memory, reserved (``open`` fails otherwise) and locked."""
        return self._owner is not None and self.survives and self.is_shared_memory and self.is_locked

    # ---- life

    def check(self) -> None:
        """Do nothing yet: a dead run may still hold the memory. ``open`` checks."""

    def open(self, still_wanted: Callable[[], None] = nothing) -> None:
        """Make the files, reserve and lock them. Raises ``ConfigError`` (too little memory), disk errors, and what
        ``still_wanted`` raises; no file is left then.
        """
        self.survives = True
        if not self._files.exists(self.base):
            if self.base != SHARED_MEMORY:
                raise ConfigError(
                    "impossible settings",
                    why=f"store.transient_store_pool_path={self.base} does not exist",
                    hint="make that directory in shared memory (tmpfs), or set it to anonymous",
                )
            self.survives = False
            self._log.warning(
                "write_buffers_do_not_survive",
                why=f"this machine has no {SHARED_MEMORY}",
                hint="messages not yet committed are lost when the process dies; set "
                "store.transient_store_pool_path to a directory in memory, or to anonymous to silence this",
            )
        else:
            self._check_room()
            super().check()
        try:
            if self.survives:
                self._make_directory()
            super().open(still_wanted)
        except StoreFull as error:
            self.close()
            raise self._too_little(0) from error
        except BaseException:
            self.close()
            raise

    def _check_room(self) -> None:
        free_bytes, total_bytes = self._files.free_bytes(self.base)
        wanted = self.size * (HEADER_BYTES + self.buffer_bytes) + _ROOM_FOR_NAMES_BYTES
        if total_bytes > 0 and wanted > free_bytes:
            raise self._too_little(wanted - free_bytes, free_bytes)

    def _too_little(self, missing: int, free_bytes: int = 0) -> ConfigError:
        each = max(0, free_bytes - _ROOM_FOR_NAMES_BYTES) // self.size - HEADER_BYTES
        fits = each - each % PAGE_BYTES
        wanted = self.size * (HEADER_BYTES + self.buffer_bytes) + _ROOM_FOR_NAMES_BYTES
        lacks = f", {missing} bytes too few" if missing else ", and they could not be reserved"
        others = leftovers(self._files, self.base, self.directory)
        if others:
            lacks += "; buffers of dead brokers hold some: " + ", ".join(
                f"{each.directory} ({each.size_bytes} bytes, store {each.root})" for each in others
            )
        smaller = f"store.transient_store_pool_buffer_size={fits}" if fits > 0 else "smaller or fewer buffers"
        return ConfigError(
            "too little shared memory",
            why=f"{self.base} has {free_bytes} bytes free for {self.size} write buffers of {self.buffer_bytes} bytes "
            f"({wanted} bytes){lacks}",
            hint=f"make it larger (docker run --shm-size, a tmpfs of your own), or set {smaller}, or another "
            "store.transient_store_pool_path, or anonymous, which loses the buffers with the process",
        )

    def _make_directory(self) -> None:
        files, environment = self._files, self._environment
        paths = environment.paths
        record = read_record(files, paths)
        store_id = self._random_bytes(ID_BYTES).hex() if record is None else record.store_id
        run_id = self._random_bytes(ID_BYTES).hex()
        directory = directory_of(self.base, store_id, run_id)
        boot = boot_id(files)
        pid = own_pid()
        self._identity = BufferIdentity(
            store_id=store_id,
            run_id=run_id,
            number=-1,
            buffers=self.size,
            buffer_bytes=self.buffer_bytes,
            segment_bytes=environment.config.mapped_file_size_commit_log,
            boot_id=boot,
            pid=pid,
            process_start=process_start(files, pid),
            root=paths.root[:ROOT_CHARS_MAX],
        )
        self._record = BufferRecord(
            store_id=store_id,
            root=paths.root,
            run_id=run_id,
            directory=directory,
            boot_id=boot,
            buffers=self.size,
            buffer_bytes=self.buffer_bytes,
            state="written",
        )
        self._salt = run_salt(run_id)
        self._number = 0
        write_record(files, paths, self._record)  # first: a start after a kill right here removes the directory
        files.make_private_dir(directory)
        self.directory = directory
        self.is_shared_memory = is_shared_memory(files, self.base)
        self._file_lock = files.lock_file(f"{directory}/{LOCK}", f"lock\npid {pid}\n")
        for other in leftovers(files, self.base, directory):
            self._log.warning(
                "write_buffers_of_another_store",
                directory=other.directory,
                store=other.root,
                size_bytes=other.size_bytes,
                what_to_do="start that store's broker, which writes them to its log; or remove the directory",
            )
        owner = self._new_file(OWNER, -1, HEADER_BYTES)
        self._owner = owner.map().words(WORDS)

    def _new_file(self, name: str, number: int, size_bytes: int) -> StoreFile:
        assert self._identity is not None
        identity = with_changes(self._identity, number=number)
        file = self._files.open_private(f"{self.directory}/{name}", create=True)
        file.reserve(size_bytes)
        file.write_at(IDENTITY_AT, identity.encode())
        return file

    def _make(self, number: int) -> tuple[WriteBuffer, NDArray[np.uint8]]:
        if not self.survives:
            return super()._make(number)
        file = self._new_file(str(number), number, HEADER_BYTES + self.buffer_bytes)
        mapped = file.map()
        file.close()
        memory = mapped.memory()
        return WriteBuffer(memory[HEADER_BYTES : len(memory)], mapped.words(WORDS), memory[HEAD]), memory

    def continue_at(self, offset: int) -> None:
        """Note where the log ends. From here on the next start looks for the buffers."""
        if self._record is not None and self._owner is not None:
            store_twice(self._owner, COMMITTED, offset, self._salt)
            self._record.state = "open"
            write_record(self._files, self._environment.paths, self._record)

    def close(self, *, is_empty: bool = True) -> None:
        """Drop the buffers; remove the files, unless they hold what the log does not have: then the next start writes
        it there. Raises ``StoreError``.
        """
        super().close(is_empty=is_empty)
        self._owner = None
        if is_empty:
            self._remove()
        lock, self._file_lock = self._file_lock, None
        if lock is not None:
            lock.release()

    def _remove(self) -> None:
        record, self._record = self._record, None
        if record is None:
            return
        record.state = "written"
        write_record(self._files, self._environment.paths, record)
        if self.directory:
            remove_directory(self._files, self.directory)
        self.directory = ""
        write_record(self._files, self._environment.paths, BufferRecord(store_id=record.store_id, root=record.root))

    # ---- use

    def bind(self, buffer: WriteBuffer, offset: int) -> None:
        """Write into a buffer's header which bytes of the log it takes. The order of the stores matters: what was
        published goes first, so it never counts for the new binding.
        """
        words, owner = buffer.words, self._owner
        if words is None or owner is None:
            return
        for place in _ZERO_PLACES:
            words[place] = 0
        self._number = number = self._number + 1
        check = binding_check(offset, number, self.epoch, self._salt)
        for at in BINDING:
            words[at] = offset
            words[at + 1] = number
            words[at + 2] = self.epoch
            words[at + 3] = check
        store_twice(owner, BOUND, number, self._salt)
        buffer.number = number
        buffer.salt = binding_salt(offset, number, self._salt)

    def unbind(self, buffers: list[WriteBuffer]) -> None:
        """Take back the buffers bound last."""
        for buffer in buffers:
            if buffer.words is not None:
                for place in _ZERO_PLACES:
                    buffer.words[place] = 0
        if buffers and self._owner is not None:
            self._number = buffers[0].number - 1
            store_twice(self._owner, BOUND, self._number, self._salt)
        super().unbind(buffers)

    def committed(self, offset: int) -> None:
        """Note that the log's files have all bytes below ``offset``."""
        if self._owner is not None:
            store_twice(self._owner, COMMITTED, offset, self._salt)

    def release(self, buffer: WriteBuffer) -> None:
        """Take back a buffer whose bytes are in the log's file."""
        if self._owner is not None:
            store_twice(self._owner, RELEASED, buffer.number, self._salt)
        self.give_back(buffer)
