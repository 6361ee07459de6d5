"""Duplicates of a growing topic: a checkpoint keeps the keys of the window.

Lives here: ``pass_on``.

Spark's ``dropDuplicatesWithinWatermark`` drops duplicates at most the window apart, and may drop others of the same
run. It also drops rows, duplicate or not, that are older than the newest row of the last run by more than the window:
they are counted as ``late``.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pocketmq.pipeline.jobs.dedupe.exact import key_of
from pocketmq.pipeline.jobs.dedupe.scan import KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

POLL_S: Final = 1


def pass_on(
    frame: "DataFrame",
    by: Sequence[str],
    time: str,
    window_ms: int,
    write: "Callable[[DataFrame], DataStreamWriter]",
    checkpoint: str,
    reached: Callable[[int], None] = lambda rows: None,
) -> dict[str, int]:
    """Run to the present end of the topic and return rows, duplicates, late. All rows without a key stay."""
    from pyspark.sql import functions as F

    names = frame.columns
    # a row without a key gets one of its own
    own = F.concat_ws("\x1f", "topic", "broker", "queue_id", "queue_offset")
    keyed = frame.withColumn(KEY, F.coalesce(F.concat(F.lit("k"), key_of(frame, by)), F.concat(F.lit("o"), own)))
    kept = keyed.withWatermark(time, f"{window_ms} milliseconds").dropDuplicatesWithinWatermark([KEY])
    query = (
        write(kept.select(*names))
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    totals: dict[int, dict[str, int]] = {}
    try:
        while not query.awaitTermination(POLL_S):
            _collect(query, totals)
            reached(sum(each["rows"] for each in totals.values()))
    finally:
        query.stop()
    _collect(query, totals)
    return {name: sum(each[name] for each in totals.values()) for name in ("rows", "duplicates", "late")}


def _collect(query: "StreamingQuery", totals: dict[int, dict[str, int]]) -> None:
    """Collect the counts of finished batches; a batch reports them once or several times."""
    for progress in query.recentProgress:
        operators: Any = progress["stateOperators"]
        totals[progress["batchId"]] = {
            "rows": progress["numInputRows"],
            "duplicates": sum(int(each["customMetrics"].get("numDroppedDuplicateRows", 0)) for each in operators),
            "late": sum(int(each["numRowsDroppedByWatermark"]) for each in operators),
        }
