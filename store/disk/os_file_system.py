"""The real disk, on Linux and best-effort on macOS.

Lives here: ``OsFileSystem`` and its files, maps and locks. Bulk bytes move through NumPy, ``preadv`` and ``pwrite``,
which release the GIL; slice assignment to an ``mmap`` holds it (ADR 0002, ``bench/own/gil.py``).
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import stat
import sys
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.store.disk.file_system import Bytes, check_below
from pocketmq.store.errors import NotPrivate, StoreError, StoreInUse, translated

FALLOC_FL_KEEP_SIZE: Final = 0x01
FALLOC_FL_ZERO_RANGE: Final = 0x10  # linux/falloc.h
_ZEROS: Final = bytes(1 << 20)
_UNSUPPORTED: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
_LINUX: Final = sys.platform == "linux"


class OsMappedFile:
    """A NumPy array over a shared map; the map ends with the last reference."""

    __slots__ = ("_array", "_view", "path", "size_bytes")

    def __init__(self, descriptor: int, size_bytes: int, path: str) -> None:
        self.path = path
        self.size_bytes = size_bytes
        try:
            mapped = mmap.mmap(descriptor, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as error:
            raise translated(error, "map failed", path) from error
        self._array: NDArray[np.uint8] = np.frombuffer(mapped, np.uint8)
        self._view = self._array.view()
        self._view.flags.writeable = False

    def store(self, offset: int, data: Bytes) -> None:
        """Copy ``data`` into the map."""
        array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        end = offset + array.size
        assert offset >= 0
        assert end <= self.size_bytes, f"store of [{offset}, {end}) into a map of {self.size_bytes} bytes"
        self._array[offset:end] = array

    def scatter(self, offsets: NDArray[np.int64], rows: NDArray[np.uint8]) -> None:
        """Copy each row to its offset."""
        self._array[offsets[:, None] + np.arange(rows.shape[1])] = rows

    def view(self) -> NDArray[np.uint8]:
        """Return the map, read-only."""
        return self._view

    def memory(self) -> NDArray[np.uint8]:
        """Return the map."""
        return self._array

    def words(self, count: int) -> memoryview:
        """Return the map's first words: an item is stored by one instruction, because it is aligned."""
        return memoryview(self._array[: 8 * count].data).cast("B").cast("Q")


class OsFile:
    """A file descriptor that closes with its last reference."""

    __slots__ = ("_descriptor", "_libc", "path")

    def __init__(self, descriptor: int, path: str, libc: ctypes.CDLL | None) -> None:
        self._descriptor = descriptor
        self._libc = libc
        self.path = path

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor, once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def size(self) -> int:
        """Return the size in bytes."""
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise translated(error, "stat failed", self.path) from error

    def read_into(self, offset: int, out: NDArray[np.uint8]) -> int:
        """Fill ``out`` with ``preadv``."""
        done = 0
        try:
            while done < out.size:
                count = os.preadv(self._descriptor, [out[done:].data if done else out.data], offset + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            raise translated(error, f"read at {offset} failed", self.path) from error
        return done

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes."""
        out = np.empty(length, np.uint8)
        return out[: self.read_into(offset, out)].tobytes()

    def write_at(self, offset: int, data: Bytes) -> None:
        """Write all with ``pwrite``."""
        try:
            buffer: Any = data
            view = memoryview(buffer)
            done = os.pwrite(self._descriptor, view, offset)
            while done < view.nbytes:
                done += os.pwrite(self._descriptor, view[done:], offset + done)
        except OSError as error:
            raise translated(error, f"write at {offset} failed", self.path) from error

    def reserve(self, size_bytes: int) -> None:
        """Reserve blocks, or write zeros where the file system cannot, so that a store into a map never hits a full
        disk (SIGBUS).
        """
        try:
            if hasattr(os, "posix_fallocate"):
                try:
                    os.posix_fallocate(self._descriptor, 0, size_bytes)
                    return
                except OSError as error:
                    if error.errno not in _UNSUPPORTED:
                        raise
            size = os.fstat(self._descriptor).st_size
        except OSError as error:
            raise translated(error, f"reserving {size_bytes} bytes failed", self.path) from error
        for at in range(size, size_bytes, len(_ZEROS)):
            self.write_at(at, _ZEROS[: min(len(_ZEROS), size_bytes - at)])

    def resize(self, size_bytes: int) -> None:
        """Cut or extend the file."""
        try:
            os.ftruncate(self._descriptor, size_bytes)
        except OSError as error:
            raise translated(error, f"resize to {size_bytes} failed", self.path) from error

    def zero(self, offset: int, length: int) -> None:
        """Zero a range through ``fallocate``, or by writing where that is unsupported."""
        if length <= 0:
            return
        if self._libc is not None and self._zero_range(offset, length):
            return
        for at in range(offset, offset + length, len(_ZEROS)):
            self.write_at(at, _ZEROS[: min(len(_ZEROS), offset + length - at)])

    def _zero_range(self, offset: int, length: int) -> bool:
        assert self._libc is not None
        mode = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE
        if self._libc.fallocate(self._descriptor, mode, ctypes.c_int64(offset), ctypes.c_int64(length)) == 0:
            return True
        number = ctypes.get_errno()
        if number in _UNSUPPORTED:
            return False
        error = OSError(number, os.strerror(number))
        raise translated(error, f"zeroing {length} bytes at {offset} failed", self.path) from error

    def next_data(self, offset: int) -> int | None:
        """Skip holes with SEEK_DATA."""
        if not hasattr(os, "SEEK_DATA"):
            return offset if offset < self.size() else None
        try:
            return os.lseek(self._descriptor, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but holes
                return None
            if error.errno in _UNSUPPORTED:
                return offset if offset < self.size() else None
            raise translated(error, f"seek from {offset} failed", self.path) from error

    def next_hole(self, offset: int) -> int:
        """Find the end of data with SEEK_HOLE."""
        if not hasattr(os, "SEEK_HOLE"):
            return self.size()
        try:
            return os.lseek(self._descriptor, offset, os.SEEK_HOLE)
        except OSError as error:
            if error.errno in (*_UNSUPPORTED, errno.ENXIO):
                return self.size()
            raise translated(error, f"seek from {offset} failed", self.path) from error

    def sync(self) -> None:
        """Sync data and size; releases the GIL."""
        try:
            if sys.platform == "darwin":
                fcntl.fcntl(self._descriptor, fcntl.F_FULLFSYNC)
            else:
                os.fdatasync(self._descriptor)
        except OSError as error:
            raise translated(error, "sync failed", self.path) from error

    def map(self) -> OsMappedFile:
        """Map the whole file."""
        return OsMappedFile(self._descriptor, self.size(), self.path)


class OsFileLock:
    """A lock by ``flock``: it excludes other processes and other opens within this one."""

    __slots__ = ("_descriptors",)

    def __init__(self, *descriptors: int) -> None:
        self._descriptors = descriptors

    def release(self) -> None:
        """Unlock; the file stays, as RocketMQ's does."""
        descriptors, self._descriptors = self._descriptors, ()
        for descriptor in descriptors:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()


class OsFileSystem:
    """Files of the operating system."""

    def __init__(self) -> None:
        self._libc: Any = ctypes.CDLL(None, use_errno=True) if _LINUX else None

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
        """Open a file."""
        flags = (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        flags |= os.O_NONBLOCK  # no effect on files; but a pipe among them must not block the start
        try:
            return OsFile(os.open(path, flags, 0o644), path, self._libc)
        except OSError as error:
            raise translated(error, "open failed", path) from error

    def open_private(self, path: str, *, create: bool = False) -> OsFile:
        """Open a file of this user alone."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        try:
            descriptor = os.open(path, flags | (os.O_CREAT | os.O_EXCL if create else 0), 0o600)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _not_private(path, "it is a symbolic link") from error
            raise translated(error, "open failed", path) from error
        file = OsFile(descriptor, path, self._libc)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _not_private(path, "it is not a file")
        if found.st_uid != os.geteuid():
            raise _not_private(path, f"it belongs to user {found.st_uid}, not to {os.geteuid()}")
        if found.st_mode & 0o022 or found.st_nlink != 1:
            raise _not_private(path, f"its mode is {found.st_mode & 0o7777:o}, and it has {found.st_nlink} names")
        return file

    def make_private_dir(self, path: str) -> None:
        """Create a directory of this user alone."""
        try:
            os.mkdir(path, 0o700)
        except OSError as error:
            raise translated(error, "creating a directory failed", path) from error

    def exists(self, path: str) -> bool:
        """Return whether it exists."""
        return os.path.exists(path)

    def identity(self, path: str) -> tuple[int, int] | None:
        """Return device and inode."""
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise translated(error, "stat failed", path) from error
        return found.st_dev, found.st_ino

    def size(self, path: str) -> int:
        """Return a file's size."""
        return self._stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """Return a file's modification time."""
        return self._stat(path).st_mtime_ns // 1_000_000

    def _stat(self, path: str) -> os.stat_result:
        try:
            return os.stat(path)
        except OSError as error:
            raise translated(error, "stat failed", path) from error

    def list(self, path: str) -> list[str]:
        """Return the names in a directory."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise translated(error, "listing failed", path) from error

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents."""
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise translated(error, "creating a directory failed", path) from error

    def remove(self, path: str) -> None:
        """Remove a file."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise translated(error, "removing failed", path) from error

    def remove_tree(self, path: str, *, below: str) -> None:
        """Remove a directory."""
        try:
            check_below(path, below, os.path.realpath)
            shutil.rmtree(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise translated(error, "removing failed", path) from error

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing the target."""
        try:
            os.replace(source, target)
        except OSError as error:
            raise translated(error, f"rename to {target} failed", source) from error

    def read_all(self, path: str) -> bytes:
        """Return a whole file."""
        file = self.open(path, writable=False)
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write a whole file beside the old one, then rename it."""
        temporary = path + ".tmp"
        try:
            file = self.open(temporary, create=True)
        except FileNotFoundError:
            self._make_directory(os.path.dirname(path))
            file = self.open(temporary, create=True)
        try:
            file.resize(0)
            file.write_at(0, data)
            if durable:
                file.sync()
        finally:
            file.close()
        self.rename(temporary, path)
        if durable:
            self.sync_dir(os.path.dirname(path))

    def _make_directory(self, path: str) -> None:
        """Make one directory, durably: a later sync of a file in it does not cover the directory's own name."""
        try:
            os.mkdir(path)
        except FileExistsError:
            return
        except OSError as error:
            raise translated(error, "creating a directory failed", path) from error
        try:
            self.sync_dir(os.path.dirname(path))
        except StoreError:
            with contextlib.suppress(OSError):  # so that the next attempt makes and syncs it again
                os.rmdir(path)
            raise

    def sync_dir(self, path: str) -> None:
        """Sync a directory's names."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise translated(error, "sync of a directory failed", path) from error

    def sync_all(self, path: str) -> None:
        """Sync the whole file system; ``ctypes`` releases the GIL."""
        if self._libc is None:
            os.sync()
            return
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if self._libc.syncfs(descriptor) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise translated(error, "sync of the file system failed", path) from error

    def lock_file(self, path: str, holder: str) -> OsFileLock:
        """Lock a file without waiting."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise translated(error, "open failed", path) from error
        try:  # the directory too: somebody may delete the file
            directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            os.close(descriptor)
            raise translated(error, "open failed", path) from error
        lock = OsFileLock(descriptor, directory)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # what a RocketMQ broker (Java FileLock) would hold
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.encode(), 0)
        except (BlockingIOError, PermissionError) as error:
            holder_now = os.pread(descriptor, 256, 0).decode("utf-8", "replace").strip()
            lock.release()
            holder = holder_now.removeprefix("lock").strip()
            raise StoreInUse(
                "a second broker on the same store",
                why=f"{os.path.dirname(path)} is locked by {holder or 'another process'}",
                hint="stop that one, or give this one a directory of its own",
            ) from error
        except OSError as error:
            lock.release()
            raise translated(error, "locking failed", path) from error
        return lock

    def free_bytes(self, path: str) -> tuple[int, int]:
        """Ask statvfs."""
        try:
            found = os.statvfs(path)
        except OSError as error:
            raise translated(error, "statvfs failed", path) from error
        # Blocks reserved for root count neither as free nor as used, as in RocketMQ's ratio: used / (used + usable).
        usable = found.f_blocks - found.f_bfree + found.f_bavail
        return found.f_bavail * found.f_frsize, usable * found.f_frsize


def _not_private(path: str, why: str) -> NotPrivate:
    return NotPrivate("file refused", why=f"{path}: {why}", hint="another user may have written it")
