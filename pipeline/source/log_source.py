"""``format("pocketmq-log")``: a store directory as a table, without a broker.

Lives here: the source, its tasks, and the count of what is damaged.

Works on a live broker's directory, on a backup, and on stores of RocketMQ 4.9 or 5.3. A task walks a part of one file
of the commit log; damaged ranges are skipped and reported on the task's standard error, with a count; with
``failOnDamage`` they are an error.
"""

import sys
from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from pocketmq.client.arrow.arrow import columns_to_arrow, concat_batches
from pocketmq.common.record_columns import RecordColumns, topic_ids
from pocketmq.pipeline.errors import DataLost
from pocketmq.pipeline.options import Options
from pocketmq.pipeline.source.columns import check_schema, default_schema
from pocketmq.pipeline.source.pushdown import Wanted, wanted_by
from pocketmq.pipeline.source.worker import settle
from pocketmq.store.offline.buffers import buffers_left
from pocketmq.store.offline.log_walk import Finding, LogRange
from pocketmq.store.offline.reader import StoreReader

if TYPE_CHECKING:
    from pyarrow import RecordBatch

OPTIONS: Final = (
    "path",
    "topics",
    "startingTimestamp",
    "endingTimestamp",
    "pushFilters",
    "broker",
    "includeProperties",
    "partBytes",
    "batchRows",
    "failOnDamage",
)
PART_BYTES: Final = 64 << 20
BATCH_ROWS: Final = 10_000


class PocketMQLogSource(DataSource):
    """Spark's name for it is ``pocketmq-log``. Options: docs/spark.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` takes."""
        return "pocketmq-log"

    def schema(self) -> StructType:
        """Return all columns, the map of properties only with ``includeProperties``."""
        return default_schema(with_properties=Options(self.options, OPTIONS).flag("includeProperties", False))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        options = Options(self.options, OPTIONS)
        kind = PushingLogReader if options.flag("pushFilters", False) else LogReader
        return kind(options, schema)


class PartPartition(InputPartition):
    """The work of one task: a part of one file."""

    def __init__(self, part: LogRange) -> None:
        super().__init__(None)
        self.part = part


class LogReader(DataSourceReader):
    """A store as it is when the query is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._path = options.text("path")
        self._columns = check_schema(schema)
        self._broker = options.text("broker", "")
        self._part_bytes = options.number("partBytes", PART_BYTES, 1 << 16)
        self._batch_rows = options.number("batchRows", BATCH_ROWS, 1, 1_000_000)
        self._fails = options.flag("failOnDamage", False)
        topics = options.text("topics", "")
        chosen = frozenset(part.strip() for part in topics.split(",") if part.strip()) or None
        self._bounds = self._wanted = Wanted(
            topics=chosen,
            time_low_ms=options.number("startingTimestamp", 0),
            time_high_ms=options.number("endingTimestamp", Wanted().time_high_ms),
        )

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the log into parts. Raises ``NotAStore``, ``EmptyStore``."""
        reader = StoreReader.open(self._path)
        try:
            buffers = buffers_left(reader.file_system, reader.paths)
            if buffers is not None and buffers.kind != "running":
                self._report_buffers(buffers.text)
            missing = reader.layout.missing  # files between others, which no task reads
            if missing:
                size = sum(end - start for start, end in missing)
                self._report_damage(f"no file for {size} bytes of the log from {missing[0][0]} on")
            return [PartPartition(part) for part in reader.ranges(self._part_bytes)]
        finally:
            reader.close()

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """Read in a task."""
        if not isinstance(partition, PartPartition):  # None: a plan without tasks
            return
        reader = StoreReader.open(self._path, reuses=True)
        findings: list[Finding] = []
        try:
            for chunk in reader.chunks(partition.part, findings.append):
                columns = self._chosen(chunk.columns)
                if len(columns) == 0:
                    continue
                batch = concat_batches([columns_to_arrow(columns, self._broker, self._columns)], self._columns)
                for at in range(0, len(batch), self._batch_rows):
                    yield batch.slice(at, self._batch_rows)
        finally:
            reader.close()
            settle()
        bad = [each for each in findings if each.kind == "damage"]
        if bad:
            size = sum(each.end - each.start for each in bad)
            self._report_damage(f"{len(bad)} damaged ranges, {size} bytes, first at {bad[0].start}: {bad[0].why}")

    def _chosen(self, columns: RecordColumns) -> RecordColumns:
        """Return the records that pass the filters, packed."""
        wanted = self._wanted
        keep = np.ones(len(columns), np.bool_)
        if wanted.topics is not None or wanted.topic_prefix:
            ids, names = topic_ids(columns.buffer, columns)
            takes = np.array([wanted.takes_topic(name) for name in names], np.bool_)
            keep &= takes[ids]
        if wanted.queue_ids is not None:
            keep &= np.isin(columns.queue_ids, sorted(wanted.queue_ids))
        if wanted.has_time:
            times = columns.store_timestamps
            keep &= (times >= wanted.time_low_ms) & (times < wanted.time_high_ms)
        if wanted.offset_low > 0 or wanted.offset_high < (1 << 62):
            keep &= (columns.queue_offsets >= wanted.offset_low) & (columns.queue_offsets < wanted.offset_high)
        return columns if keep.all() else columns.take(np.flatnonzero(keep))

    def _report_buffers(self, text: str) -> None:
        if self._fails:
            raise DataLost("the log is not complete", why=text, hint="start the broker once, or set failOnDamage=false")
        print(f"pocketmq-log: {text}", file=sys.stderr, flush=True)

    def _report_damage(self, text: str) -> None:
        if self._fails:
            raise DataLost("the log is damaged", why=text, hint="run pocketmq log verify, or set failOnDamage=false")
        print(f"pocketmq-log: skipped {text}", file=sys.stderr, flush=True)


class PushingLogReader(LogReader):
    """A store, read without records that a query's filters exclude; see ``source.PushingTopicReader``."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Skip records that the filters exclude; Spark applies all filters to the rows."""
        self._wanted = self._bounds.narrowed(wanted_by(filters))
        yield from filters
