"""Batches and swaps survive a kill between any two steps; the same on Hadoop's file system."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pocketmq.pipeline.jobs.archive.compaction import plan
from pocketmq.pipeline.jobs.archive.files import Files, HadoopFiles, LocalFiles, is_visible
from pocketmq.pipeline.jobs.archive.publishing import STAGING, Publisher
from pocketmq.pipeline.jobs.archive.swapping import Swapper
from pocketmq.pipeline.jobs.common.command import JobFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOURS = ("date=2026-11-21/hour=06", "date=2026-11-21/hour=07")


class Killed(BaseException):
    """The process ends here."""


class MortalFiles(LocalFiles):
    """Files whose process is killed before step ``fatal`` (a rename, write, exchange or removal)."""

    def __init__(self, root: Path, fatal: int, *, exchanges: bool = True) -> None:
        super().__init__(root)
        self.steps = 0
        self._fatal = fatal
        self._exchanges = exchanges

    def _step(self) -> None:
        if self.steps == self._fatal:
            raise Killed
        self.steps += 1

    def write(self, path: str, data: bytes) -> None:
        self._step()
        super().write(path, data)

    def rename(self, path: str, to: str) -> None:
        self._step()
        super().rename(path, to)

    def exchange(self, path: str, other: str) -> bool:
        if not self._exchanges:
            return False
        self._step()
        return super().exchange(path, other)

    def remove(self, path: str) -> None:
        """The files of a tree go one by one: a kill in the middle leaves some of them."""
        target = self._path / path
        if target.is_dir():
            for name in sorted(os.listdir(target)):
                self.remove(f"{path}/{name}")
        self._step()
        if target.is_dir():
            target.rmdir()
        else:
            target.unlink(missing_ok=True)


def rows(files: LocalFiles) -> list[str]:
    """Return the rows that a reader of the dataset sees now: the lines of all files."""
    root = files._path
    return sorted(line for path in files.sizes("") for line in (root / path).read_text().split())


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def batch(root: Path, name: str, lines: list[str]) -> Callable[[str], int]:
    """Return a function that writes a batch, under names that differ each time, as Spark's do."""

    def write(directory: str) -> int:
        assert directory.startswith(LocalFiles(root).root)
        to = root / directory.removeprefix(f"{LocalFiles(root).root}/")
        for number, line in enumerate(lines):
            put(to / HOURS[number % 2] / f"{name}-{os.urandom(4).hex()}.parquet", line)
        put(to / "_SUCCESS", "")
        return len(lines)

    return write


def fates(run: Callable[[int], bool]) -> Iterator[int]:
    """Run with a kill before each step in turn, until one run completes."""
    fatal = 0
    while not run(fatal):
        yield fatal
        fatal += 1
    assert fatal > 3, "the run had no steps to be killed at"


def test_a_batch_is_published_once_whatever_is_killed(tmp_path: Path) -> None:
    """Killed before any step, recovered (and killed there, too), repeated: each row is there once, none before it was
    written, and visible rows stay visible.
    """
    lines = [f"r{n}" for n in range(5)]

    def run(fatal: int, again: int) -> bool:
        root = tmp_path / f"{fatal}-{again}"
        whole = LocalFiles(root)
        Publisher(whole).publish(6, batch(root, "first", ["old"]))
        lived = True
        try:
            Publisher(MortalFiles(root, fatal)).publish(7, batch(root, "a", lines))
        except Killed:
            lived = False
        seen = set(rows(whole))
        assert len(rows(whole)) == len(seen) <= 6
        try:
            Publisher(MortalFiles(root, again)).recover()
        except Killed:
            assert seen <= set(rows(whole))
        Publisher(whole).recover()
        assert seen <= set(rows(whole))
        note = Publisher(whole).publish(7, batch(root, "b", lines))
        assert note.rows == 5
        assert rows(whole) == sorted(["old", *lines])
        assert whole.names(STAGING) == []
        return lived

    for fatal in fates(lambda fatal: run(fatal, 99)):
        for again in range(0, 8, 3):
            run(fatal, again)


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_swap_loses_and_doubles_nothing_whatever_is_killed(tmp_path: Path, exchanges: bool) -> None:
    """With exchanges a reader sees all rows once at every step; with two renames an hour may lack until recovery."""

    def run(fatal: int) -> bool:
        root = tmp_path / f"{fatal}"
        whole = LocalFiles(root)
        for hour in HOURS:
            put(root / hour / "x-1.parquet", f"{hour[-2:]}a")
            put(root / hour / "x-2.parquet", f"{hour[-2:]}b")
            put(root / STAGING / "merge-0" / hour / "y.parquet", f"{hour[-2:]}a {hour[-2:]}b")
        before = rows(whole)
        assert len(before) == 4
        lived = True
        try:
            Swapper(MortalFiles(root, fatal, exchanges=exchanges)).swap(f"{STAGING}/merge-0", list(HOURS))
        except Killed:
            lived = False
        assert set(rows(whole)) <= set(before)
        assert len(rows(whole)) == len(set(rows(whole)))
        if exchanges:
            assert rows(whole) == before
        Swapper(whole).recover()
        Swapper(whole).recover()
        assert rows(whole) == before
        assert whole.names(STAGING) == []
        if lived:
            assert len(whole.sizes("")) == 2
        return lived

    if exchanges and not LocalFiles(tmp_path).exchange("none", "none"):
        for name in ("p", "q"):
            (tmp_path / name).mkdir()
        if not LocalFiles(tmp_path).exchange("p", "q"):
            pytest.skip("this file system exchanges no directories")
    assert list(fates(run))


def test_a_damaged_note_is_reported(tmp_path: Path) -> None:
    """A damaged note does not count as a missing one."""
    files = LocalFiles(tmp_path)
    Publisher(files).publish(1, batch(tmp_path, "a", ["x"]))
    put(tmp_path / "_pocketmq/batches/0000000001.json", "{")
    with pytest.raises(JobFailed, match="damaged"):
        Publisher(files).publish(1, batch(tmp_path, "a", ["x"]))


def test_a_second_job_on_one_archive_is_refused(tmp_path: Path) -> None:
    """The lock is held until the first job has ended, and leaves nothing behind."""
    files = LocalFiles(tmp_path)
    with files.locked("lock"), pytest.raises(JobFailed, match="in use"), LocalFiles(tmp_path).locked("lock"):
        pass
    with files.locked("lock"):
        pass


@pytest.mark.slow
def test_both_file_systems_do_the_same(tmp_path: Path, spark: "SparkSession") -> None:
    """The operations under publishing give the same results on Hadoop's file system as on LocalFiles."""
    context: Any = spark.sparkContext
    hadoop = context._jvm.org.apache.hadoop.fs
    seen = []
    for name in ("own", "hadoop"):
        root = tmp_path / name
        root.mkdir()
        files: Files = LocalFiles(root)
        if name == "hadoop":
            system = hadoop.Path(LocalFiles(root).root).getFileSystem(context._jsc.hadoopConfiguration())
            files = HadoopFiles(context._jvm, system, LocalFiles(root).root)
        files.write("a/note.json", b"one")
        put(root / "s/date=1/p.parquet", "row")
        put(root / "s/_SUCCESS", "")
        put(root / "s/_x/q.parquet", "row")
        found: list[object] = [files.read("a/note.json"), files.read("a/none"), files.exists("a"), files.exists("b")]
        found += [files.names("s"), files.names("none"), files.sizes("s"), files.sizes("none")]
        files.rename("s/date=1/p.parquet", "date=1/p.parquet")
        found += [files.sizes(""), files.exists("s/date=1/p.parquet")]
        files.remove("s")
        files.remove("s")
        found += [files.exists("s"), [each for each in files.names("") if not each.startswith(".")]]
        seen.append(found)
    assert seen[0] == seen[1]


def test_only_directories_with_too_many_files_are_merged() -> None:
    """Directories with no more files than their size needs stay unchanged; so do directories that are no hour."""
    sizes = {f"{HOURS[0]}/{n}.parquet": 10 for n in range(8)}
    sizes |= {f"{HOURS[1]}/{n}.parquet": 100 for n in range(3)} | {"other/x.parquet": 1, "other/y.parquet": 1}
    [merge] = plan(sizes, 50, 2)
    assert (merge.directory, merge.files, merge.size_bytes, merge.needed) == (HOURS[0], 8, 80, 2)
    assert plan(sizes, 50, 9) == []


@pytest.mark.parametrize(
    ("path", "wanted"),
    [("date=1/a.parquet", True), ("_x/a.parquet", False), ("d/.a.parquet", False), ("d/a.parquet.crc", False)],
)
def test_what_readers_see(path: str, wanted: bool) -> None:
    """As in Spark and Arrow, names that begin with an underscore or a dot are ignored."""
    assert is_visible(path) is wanted
