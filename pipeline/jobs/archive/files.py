"""Files of a dataset, on the driver's machine or in a file system of Hadoop (HDFS, S3, …).

Lives here: ``Files``, ``LocalFiles``, ``HadoopFiles``, ``files_of``.

Paths are relative to the root, with ``/`` between their parts.
"""

import ctypes
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from pocketmq.pipeline.jobs.common.command import JobFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE: Final = -100
"""AT_FDCWD (fcntl.h)."""
_EXCHANGE: Final = 2
"""RENAME_EXCHANGE (linux/fs.h)."""


class Files(Protocol):
    """A file system for the jobs. ``root``: Spark's name of its root."""

    root: str

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; none if it does not exist."""

    def sizes(self, path: str) -> dict[str, int]:
        """Return the Parquet files below a directory that are visible to readers: path → bytes."""

    def read(self, path: str) -> bytes | None:
        """Return a small file, None if it does not exist."""

    def write(self, path: str, data: bytes) -> None:
        """Write a small file that does not exist yet; a kill leaves all of it or nothing."""

    def rename(self, path: str, to: str) -> None:
        """Rename a file or directory to a path that does not exist; creates its parents."""

    def exchange(self, path: str, other: str) -> bool:
        """Exchange two directories in one step; False if the file system cannot."""

    def remove(self, path: str) -> None:
        """Remove a file or a tree, if it exists."""

    def sync(self, path: str) -> None:
        """Make the files below a directory survive a power loss, unless the file system does anyway."""

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """Hold a lock, at most until this process ends; raise ``JobFailed`` if another one holds it."""
        yield


def files_of(spark: "SparkSession", path: str) -> Files:
    """Return the files below ``path``, as Spark resolves it. Raises ``JobFailed``."""
    jvm: Any = spark.sparkContext._jvm
    java_path = jvm.org.apache.hadoop.fs.Path(path)
    system = java_path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    if system.getUri().getScheme() == "file":
        plain = path.removeprefix("file:")  # like Hadoop, decodes no %20
        return LocalFiles(Path("/" + plain.lstrip("/") if plain != path else path).absolute())
    return HadoopFiles(jvm, system, path.rstrip("/"))


def is_visible(path: str) -> bool:
    """Return whether readers of a dataset see a file: they ignore names that begin with ``_`` or ``.``."""
    return path.endswith(".parquet") and not any(part.startswith(("_", ".")) for part in path.split("/"))


class LocalFiles:
    """Files of this machine."""

    def __init__(self, root: Path) -> None:
        self._path = root
        self.root = f"file://{root.as_posix()}"

    def exists(self, path: str) -> bool:
        """See ``Files``."""
        return (self._path / path).exists()

    def names(self, path: str) -> list[str]:
        """See ``Files``."""
        try:
            return sorted(os.listdir(self._path / path))
        except FileNotFoundError:
            return []

    def sizes(self, path: str) -> dict[str, int]:
        """See ``Files``."""
        top = self._path / path
        found = {}
        for directory, below, names in os.walk(top):
            below[:] = [name for name in below if not name.startswith(("_", "."))]
            for name in names:
                file = Path(directory, name)
                if is_visible(name):
                    found[file.relative_to(self._path).as_posix()] = file.stat().st_size
        return dict(sorted(found.items()))

    def read(self, path: str) -> bytes | None:
        """See ``Files``."""
        try:
            return (self._path / path).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        """See ``Files``."""
        target = self._path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}.{os.getpid()}")
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, target)
        _sync_directory(target.parent)

    def rename(self, path: str, to: str) -> None:
        """See ``Files``."""
        target = self._path / to
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(self._path / path, target)

    def exchange(self, path: str, other: str) -> bool:
        """See ``Files``. On Linux, with ext4, XFS, Btrfs, tmpfs and others."""
        try:
            call = ctypes.CDLL(None, use_errno=True).renameat2
        except (AttributeError, OSError):
            return False
        names = [os.fsencode(self._path / each) for each in (path, other)]
        return bool(call(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0)

    def remove(self, path: str) -> None:
        """See ``Files``."""
        target = self._path / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def sync(self, path: str) -> None:
        """See ``Files``."""
        for directory, _, names in os.walk(self._path / path):
            for name in names:
                with open(Path(directory, name), "rb") as file:
                    os.fsync(file.fileno())
            _sync_directory(Path(directory))

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """See ``Files``. The kernel releases the lock when the process ends."""
        target = self._path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise JobFailed(
                    "the archive is in use", why=f"another job holds {target}", hint="wait until it has ended"
                ) from error
            yield


@dataclass(slots=True)
class HadoopFiles:
    """Files of a file system of Hadoop, through Spark's Java. ``locked`` locks nothing here: only the checkpoint's own
    log refuses a second archive job on one output.
    """

    _jvm: Any
    _system: Any
    root: str

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.root}/{path}" if path else self.root)

    def exists(self, path: str) -> bool:
        """See ``Files``."""
        return bool(self._system.exists(self._at(path)))

    def names(self, path: str) -> list[str]:
        """See ``Files``."""
        if not self.exists(path):
            return []
        return sorted(each.getPath().getName() for each in self._system.listStatus(self._at(path)))

    def sizes(self, path: str) -> dict[str, int]:
        """See ``Files``."""
        if not self.exists(path):
            return {}
        base = self._system.makeQualified(self._at("")).toUri().getPath().rstrip("/") + "/"
        found = {}
        walk = self._system.listFiles(self._at(path), True)
        start = f"{path}/" if path else ""
        while walk.hasNext():
            status = walk.next()
            name = status.getPath().toUri().getPath().removeprefix(base)
            if is_visible(name.removeprefix(start)):
                found[name] = int(status.getLen())
        return dict(sorted(found.items()))

    def read(self, path: str) -> bytes | None:
        """See ``Files``."""
        if not self.exists(path):
            return None
        stream = self._system.open(self._at(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, path: str, data: bytes) -> None:
        """See ``Files``."""
        aside = self._at(f"{path}.new")
        stream = self._system.create(aside, True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
        self._renamed(aside, self._at(path))

    def rename(self, path: str, to: str) -> None:
        """See ``Files``."""
        target = self._at(to)
        self._system.mkdirs(target.getParent())
        self._renamed(self._at(path), target)

    def _renamed(self, path: Any, to: Any) -> None:
        if not self._system.rename(path, to):
            raise JobFailed("file not renamed", why=f"{path} to {to}", hint="may this user write there?")

    def exchange(self, path: str, other: str) -> bool:
        """See ``Files``."""
        return False

    def remove(self, path: str) -> None:
        """See ``Files``."""
        self._system.delete(self._at(path), True)

    def sync(self, path: str) -> None:
        """See ``Files``: these file systems store a file when it is closed."""

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """See ``Files``."""
        yield


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
