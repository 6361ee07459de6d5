"""Differences between two sides.

Lives here: ``compare``: the pairs, and from them the differences by kind.

Messages of one identity are paired in their order: the first with the first. Unpaired messages of the expected side are
``lost``; those of the other side ``duplicated`` if their identity was expected at all, else ``unexpected``. Pairs with
different content are ``altered``, pairs whose times lie too far apart ``delayed``. ``reordered`` is the smallest set of
pairs without which the others are in order, among pairs with the same group on the expected side and the same queue on
the other: queues have no order among each other.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pocketmq.pipeline.jobs.reconcile.misplaced import BLOCK, RANK, keep_misplaced
from pocketmq.pipeline.jobs.reconcile.sides import Side

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS: Final = ("lost", "unexpected", "duplicated", "altered", "reordered", "delayed")
PIECE_ROWS: Final = 1_000_000
"""A longer run of disorder is judged in pieces of this many rows: a task holds one in memory."""


@dataclass(slots=True)
class Comparison:
    """``differences``: a row each, with kind, id, expected_at, expected_time, actual_at, actual_time, delay_ms. Rows
    without identity are counted, not compared.
    """

    differences: "DataFrame"
    expected: int
    actual: int
    matched: int
    without_id_expected: int
    without_id_actual: int
    shift_ms: int
    checks: tuple[str, ...]
    """Kinds that were checked."""
    _kept: "list[DataFrame]"

    def close(self) -> None:
        """Free the frames that Spark keeps."""
        for frame in self._kept:
            frame.unpersist()


def compare(expected: Side, actual: Side, *, delay_ms: int | None, shift_ms: int | None, content: bool) -> Comparison:
    """Compare two sides. ``delay_ms``: allowed difference of a pair's times, None: not checked; ``shift_ms``:
    subtracted from each difference first, None for their median.
    """
    from pyspark.sql import functions as F
    from pyspark.storagelevel import StorageLevel

    pairs = _pairs(expected.frame, actual.frame).persist(StorageLevel.MEMORY_AND_DISK)
    has_times = expected.has_time and actual.has_time
    delay = ((F.col("a_time_us") - F.col("e_time_us")) / 1000).cast("long")
    both = F.col("e_id").isNotNull() & F.col("a_id").isNotNull()
    row = pairs.agg(
        F.count("e_id").alias("expected"),
        F.count("a_id").alias("actual"),
        F.count_if(both).alias("matched"),
        F.percentile_approx(delay, 0.5, 10_000).alias("median"),
    ).collect()[0]
    nameless = [side.frame.where("id is null").count() for side in (expected, actual)]
    shift = shift_ms if shift_ms is not None else int(row["median"] or 0)
    kinds = F.array_compact(
        F.array(
            F.when(F.col("a_id").isNull(), "lost"),
            F.when(F.col("e_id").isNull() & ~F.col("known"), "unexpected"),
            F.when(F.col("e_id").isNull() & F.col("known"), "duplicated"),
            F.when(both & (F.col("e_content") != F.col("a_content")), "altered"),
            F.when(both & (delay - shift > (delay_ms if delay_ms is not None else 0)), "delayed")
            if delay_ms is not None and has_times
            else F.lit(None),
        )
    )
    found = pairs.withColumn("kind", F.explode(kinds))
    checks = ["lost", "unexpected", "duplicated"]
    if content:
        checks.append("altered")
    if expected.has_order and actual.has_order:
        checks.append("reordered")
        found = found.unionByName(_reordered(pairs).withColumn("kind", F.lit("reordered")), allowMissingColumns=True)
    if delay_ms is not None and has_times:
        checks.append("delayed")
    differences = found.select(
        "kind",
        F.coalesce("e_shown", "a_shown").alias("id"),
        F.col("e_place").alias("expected_at"),
        F.timestamp_micros("e_time_us").alias("expected_time"),
        F.col("a_place").alias("actual_at"),
        F.timestamp_micros("a_time_us").alias("actual_time"),
        (delay - shift).alias("delay_ms"),
    ).persist(StorageLevel.MEMORY_AND_DISK)
    return Comparison(
        differences,
        row["expected"] + nameless[0],
        row["actual"] + nameless[1],
        row["matched"],
        nameless[0],
        nameless[1],
        shift if delay_ms is not None and has_times else 0,
        tuple(checks),
        [pairs, differences],
    )


def _pairs(expected: "DataFrame", actual: "DataFrame") -> "DataFrame":
    """Return all rows with an identity, paired; columns of the expected side begin with e_, of the other with a_.
    ``known``: the identity is on the expected side.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    sides = []
    for frame, letter in ((expected, "e"), (actual, "a")):
        order = Window.partitionBy("id").orderBy("time_us", "grp", "pos")
        numbered = frame.where("id is not null").withColumn("n", F.row_number().over(order))
        renamed = numbered.select(
            F.col("id").alias("id"), "n", *(F.col(each).alias(f"{letter}_{each}") for each in frame.columns)
        )
        sides.append(renamed)
    joined = sides[0].join(sides[1], ["id", "n"], "full")
    return joined.withColumn("known", F.max(F.col("e_id").isNotNull()).over(Window.partitionBy("id")))


def _reordered(pairs: "DataFrame") -> "DataFrame":
    """Return the pairs that are out of order.

    Both sides get dense ranks within a sequence. Where the greatest rank so far equals the number of rows so far, all
    rows so far come before the others: the sequence splits there, and only blocks of more than one row need a check.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    sequence = ("e_grp", "a_queue")
    paired = pairs.where("e_id is not null and a_id is not null and e_pos is not null and a_pos is not null")
    by_expected = Window.partitionBy(*sequence).orderBy("_seat")
    ranked = paired.withColumns(
        {
            "_seat": F.row_number().over(Window.partitionBy(*sequence).orderBy("e_pos", "n")),
            RANK: F.row_number().over(Window.partitionBy(*sequence).orderBy("a_pos", "n")),
        }
    )
    ends = ranked.withColumn("_ends", (F.max(RANK).over(by_expected) == F.col("_seat")).cast("long"))
    before = by_expected.rowsBetween(Window.unboundedPreceding, -1)
    numbered = ends.withColumn("_number", F.coalesce(F.sum("_ends").over(before), F.lit(0)))
    sized = numbered.withColumn("_size", F.count(F.lit(1)).over(Window.partitionBy(*sequence, "_number")))
    messy = sized.where("_size > 1").withColumn(
        BLOCK,
        F.concat_ws(
            "\x1f", *sequence, F.col("_number").cast("string"), F.floor(F.col("_seat") / PIECE_ROWS).cast("string")
        ),
    )
    kept = messy.select(BLOCK, RANK, "_seat", *pairs.columns)
    spread = kept.repartition(BLOCK).sortWithinPartitions(BLOCK, "_seat")
    return spread.mapInArrow(keep_misplaced, kept.schema).select(*pairs.columns)
