"""Duplicates of a whole table: the first row of each key stays.

Lives here: ``without_duplicates``, the counts, the key of a row.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pocketmq.common.errors import ConfigError
from pocketmq.pipeline.jobs.dedupe.scan import DUPLICATE, KEY, TIME, mark
from pocketmq.pipeline.jobs.reconcile.sides import SEPARATOR, column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

ORDER: Final = ("topic", "broker", "queue_id", "queue_offset")


def key_of(frame: "DataFrame", by: Sequence[str]) -> "Column":
    """Return the key of a row as text, null if one of its columns is null or empty. Raises ``ConfigError``."""
    from pyspark.sql import functions as F

    kinds = {field.name: field.dataType.typeName() for field in frame.schema.fields}
    parts = []
    for each in by:
        base = "properties" if each.startswith("properties.") else each
        if base not in kinds:
            raise ConfigError("no such column", why=each, hint="columns: " + ", ".join(kinds))
        value = column(frame, each)
        if kinds.get(each) == "binary":  # sorts and compares a hash, not megabytes
            parts.append(F.when(F.octet_length(value) > 0, F.sha2(value, 256)))
        else:
            text = value.cast("string")
            parts.append(F.when(text != "", text))
    if len(parts) == 1:
        return parts[0]
    return F.concat(*[piece for part in parts for piece in (part, F.lit(SEPARATOR))])


def time_us(frame: "DataFrame", time: str) -> "Column":
    """Return the time of a row in µs. Raises ``ConfigError``."""
    from pyspark.sql import functions as F

    if time and time not in frame.columns:
        raise ConfigError("no such column", why=time, hint="columns: " + ", ".join(frame.columns))
    zero = F.lit(0).cast("long")
    return F.coalesce(F.unix_micros(F.col(time).try_cast("timestamp")), zero) if time else zero


def without_duplicates(
    frame: "DataFrame", by: Sequence[str], time: str, window_ms: int | None, counts: "Observation"
) -> "DataFrame":
    """Return the rows that stay, unordered. All rows without a key stay.

    ``counts`` gets rows, duplicates, without_key when the result is written. The first row of a key is the one with the
    smallest time, then queue and offset.
    """
    from pyspark.sql import functions as F

    names = frame.columns
    keyed = frame.withColumns({KEY: key_of(frame, by), TIME: time_us(frame, time), DUPLICATE: F.lit(False)})
    order = [KEY, TIME, *(name for name in ORDER if name in names)]
    with_key = keyed.where(F.col(KEY).isNotNull()).repartition(KEY).sortWithinPartitions(*order)
    window_us = None if window_ms is None else window_ms * 1000
    marked = with_key.mapInArrow(lambda batches: mark(batches, window_us), with_key.schema)
    # rows without a key need no sorting, and would all land in one task
    both = marked.unionByName(keyed.where(F.col(KEY).isNull()))
    counted = both.observe(
        counts,
        F.count(F.lit(1)).alias("rows"),
        F.count_if(DUPLICATE).alias("duplicates"),
        F.count_if(F.col(KEY).isNull()).alias("without_key"),
    )
    return counted.where(~F.col(DUPLICATE)).select(*names)
