"""Small files of a dataset merged, hour by hour.

Lives here: ``plan`` (which directories to merge), ``compact`` (rewriting, with a count of rows).

A directory is rewritten as a whole, its rows sorted by queue and offset; then one file holds the rows of one queue and
hour. Rows are counted in the old and the new files before these change places; different counts change nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pocketmq.pipeline.jobs.archive.files import Files
from pocketmq.pipeline.jobs.archive.publishing import STAGING
from pocketmq.pipeline.jobs.archive.swapping import Swapper
from pocketmq.pipeline.jobs.common.command import JobFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOGETHER: Final = 64
"""Directories that one pass of Spark rewrites."""
TOGETHER_BYTES: Final = 8 << 30
ORDER: Final = ("broker", "queue_id", "queue_offset")


@dataclass(slots=True, frozen=True)
class Merge:
    """One directory to rewrite: its files and bytes now, and how many files it needs."""

    directory: str
    files: int
    size_bytes: int
    needed: int


@dataclass(slots=True)
class Merged:
    """Counts of a compaction."""

    directories: int = 0
    files_before: int = 0
    files_after: int = 0
    rows: int = 0


def plan(sizes: Mapping[str, int], target_bytes: int, files_min: int) -> list[Merge]:
    """Return the directories that have at least ``files_min`` files and more than they need for ``target_bytes``
    each. ``sizes``: file → bytes."""
    groups: dict[str, list[int]] = {}
    for path, size in sizes.items():
        directory = path.rpartition("/")[0]
        if directory.startswith("date="):
            groups.setdefault(directory, []).append(size)
    merges = []
    for directory, each in sorted(groups.items()):
        needed = max(1, -(-sum(each) // target_bytes))
        if len(each) >= files_min and len(each) > needed:
            merges.append(Merge(directory, len(each), sum(each), needed))
    return merges


def _together(merges: list[Merge]) -> Iterator[list[Merge]]:
    """Cut the work into passes of Spark."""
    part: list[Merge] = []
    size_bytes = 0
    for each in merges:
        if part and (len(part) == TOGETHER or size_bytes + each.size_bytes > TOGETHER_BYTES):
            yield part
            part, size_bytes = [], 0
        part.append(each)
        size_bytes += each.size_bytes
    if part:
        yield part


def compact(
    spark: "SparkSession",
    files: Files,
    merges: list[Merge],
    done: Callable[[int], None] = lambda count: None,
) -> Merged:
    """Rewrite directories; ``done`` gets the number of those done. Raises ``JobFailed`` if rows would be lost."""
    result = Merged()
    for number, part in enumerate(_together(merges)):
        staged = f"{STAGING}/merge-{number}"
        files.remove(staged)
        before = _read(spark, files, [f"{files.root}/{each.directory}" for each in part])
        _write(before, part, f"{files.root}/{staged}")
        rows_before = _counts(before)
        after = _read(spark, files, [f"{files.root}/{staged}/{each.directory}" for each in part], staged)
        rows_after = _counts(after)
        if rows_before != rows_after:
            raise JobFailed(
                "files not merged",
                why=f"{sum(rows_before.values())} rows before, {sum(rows_after.values())} after",
                hint="the old files are unchanged; did another program write into the archive?",
            )
        sizes = files.sizes(staged)
        Swapper(files).swap(staged, [each.directory for each in part])
        result.directories += len(part)
        result.files_before += sum(each.files for each in part)
        result.files_after += len(sizes)
        result.rows += sum(rows_after.values())
        done(result.directories)
    return result


def _read(spark: "SparkSession", files: Files, directories: list[str], staged: str = "") -> "DataFrame":
    """Read directories, with date and hour as texts."""
    from pyspark.sql import functions as F

    base = f"{files.root}/{staged}" if staged else files.root
    frame = spark.read.option("basePath", base).parquet(*directories)
    return frame.withColumns(
        {"date": F.col("date").cast("string"), "hour": F.lpad(F.col("hour").cast("string"), 2, "0")}
    )


def _write(frame: "DataFrame", part: list[Merge], path: str) -> None:
    from pyspark.sql import functions as F

    several = {each.directory: each.needed for each in part if each.needed > 1}
    file_number = F.lit(0)
    if several:
        needed = F.create_map(*[F.lit(value) for pair in several.items() for value in pair])
        directory = F.concat(F.lit("date="), "date", F.lit("/hour="), "hour")
        count = F.coalesce(needed[directory], F.lit(1))
        file_number = F.pmod(F.hash("broker", "queue_id"), count)
    tasks = sum(each.needed for each in part)
    frame.repartition(tasks, "date", "hour", file_number).sortWithinPartitions(
        "date", "hour", *ORDER
    ).write.partitionBy("date", "hour").parquet(path)


def _counts(frame: "DataFrame") -> dict[tuple[str, str], int]:
    return {(row["date"], row["hour"]): row["count"] for row in frame.groupBy("date", "hour").count().collect()}
