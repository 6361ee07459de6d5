"""``format("pocketmq")``: a topic as a table, in batch and as a stream.

Lives here: the classes that Spark calls.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pocketmq.client.pull.subscription import parse_subscription
from pocketmq.common.errors import PocketMQError
from pocketmq.pipeline.access import ACCESS_OPTIONS, Access
from pocketmq.pipeline.errors import DataLost, OptionIllegal
from pocketmq.pipeline.options import Options
from pocketmq.pipeline.sink.sink import TopicStreamWriter, TopicWriter
from pocketmq.pipeline.sink.sink_plan import SINK_OPTIONS
from pocketmq.pipeline.source.columns import check_schema, default_schema
from pocketmq.pipeline.source.planner import Planner
from pocketmq.pipeline.source.positions import Positions, QueueKey, QueueRange, admit, cut, ranges_between
from pocketmq.pipeline.source.pushdown import Wanted, wanted_by
from pocketmq.pipeline.source.range_reader import ReadPlan, read_ranges
from pocketmq.pipeline.source.starting import EARLIEST, LATEST, Bound, Choice

if TYPE_CHECKING:
    from pyarrow import RecordBatch

COMMON_OPTIONS: Final = (
    "namesrv",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "minPartitions",
    "failOnDataLoss",
    "includeProperties",
    "group",
    "pullBytes",
    "batchRows",
    "brokerWaitMs",
    "tags",
    "checkCrcs",
    *ACCESS_OPTIONS,
)
BATCH_OPTIONS: Final = (*COMMON_OPTIONS, "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushFilters")
STREAM_OPTIONS: Final = (*COMMON_OPTIONS, "maxOffsetsPerTrigger", "maxBytesPerTrigger")
DEFAULT_GROUP: Final = "pocketmq-spark"
PULL_BYTES: Final = 1 << 20
PULL_BYTES_MAX: Final = 4 << 20
BATCH_ROWS: Final = 10_000
"""Batches of 2,000 to 10,000 rows are best for Spark's Python workers (measured; 50,000 and more are slower)."""
BROKER_WAIT_MS: Final = 300_000


class PocketMQSource(DataSource):
    """The format ``pocketmq``. Options: docs/spark.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "pocketmq"

    def schema(self) -> StructType:
        """Return all columns, the map of properties only with ``includeProperties``."""
        known = set(BATCH_OPTIONS) | set(STREAM_OPTIONS) | set(SINK_OPTIONS)
        options = Options(self.options, known)
        return default_schema(with_properties=options.flag("includeProperties", False))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader."""
        options = Options(self.options, BATCH_OPTIONS)
        kind = PushingTopicReader if options.flag("pushFilters", False) else TopicReader
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the stream reader."""
        return TopicStreamReader(Options(self.options, STREAM_OPTIONS), schema)

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        """Return the batch writer."""
        return TopicWriter(Options(self.options, SINK_OPTIONS), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:
        """Return the stream writer."""
        return TopicStreamWriter(Options(self.options, SINK_OPTIONS), schema, overwrite)


class RangesPartition(InputPartition):
    """The work of one task, and the identities of its topics."""

    def __init__(self, ranges: Sequence[QueueRange], identities: Mapping[tuple[str, str], str]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)
        self.identities = {(each.topic, each.broker): identities.get((each.topic, each.broker), "") for each in ranges}


def _read(plan: ReadPlan, partition: InputPartition) -> "Iterator[RecordBatch]":
    """Return the rows of a task; Spark runs an empty plan with None."""
    if isinstance(partition, RangesPartition):
        return read_ranges(plan, partition.ranges, partition.identities)
    return iter(())


def _planner(options: Options) -> Planner:
    wait_ms = options.number("brokerWaitMs", BROKER_WAIT_MS, 0, 86_400_000)
    return Planner(options.text("namesrv"), options.text("group", DEFAULT_GROUP), wait_ms, Access.of(options))


def _plan(options: Options, columns: tuple[str, ...], tags: str = "") -> ReadPlan:
    """Return how tasks read. ``tags``: from filters; empty: those of the option."""
    return ReadPlan(
        namesrv=options.text("namesrv"),
        group=options.text("group", DEFAULT_GROUP),
        columns=columns,
        pull_bytes=options.number("pullBytes", PULL_BYTES, 1, PULL_BYTES_MAX),
        batch_rows=options.number("batchRows", BATCH_ROWS, 1, 1_000_000),
        wait_ms=options.number("brokerWaitMs", BROKER_WAIT_MS, 0, 86_400_000),
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        tags=tags or parse_tags_option(options),
        check_crcs=options.flag("checkCrcs", True),
        access=Access.of(options),
    )


def parse_tags_option(options: Options) -> str:
    """Return the checked option ``tags`` (``a || b``); empty without it."""
    text = options.text("tags", "")
    if text:
        try:
            parse_subscription("tags", text, 0)
        except PocketMQError as error:
            raise OptionIllegal("bad option", why=f"tags={text!r}: {error}") from error
    return "" if text == "*" else text


class TopicReader(DataSourceReader):
    """A topic as it is when the query is planned. Bounds come from options."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._columns = check_schema(schema)
        self._choice = Choice.of(options)
        self._start = Bound.of(options, "starting", EARLIEST)
        self._end = Bound.of(options, "ending", LATEST)
        self._wanted = Wanted()
        self._tasks = options.number("minPartitions", 0, 0, 1_000_000)
        _plan(options, self._columns)  # refuses bad options now, not in a task
        for name, word, empty in (("starting", self._start.word, LATEST), ("ending", self._end.word, EARLIEST)):
            if word == empty:
                raise OptionIllegal("bad option", why=f"{name}Offsets={word} in a batch query reads nothing")

    def partitions(self) -> Sequence[InputPartition]:
        """Ask the brokers for the bounds of the queues, and cut the wanted ranges into tasks."""
        planner = _planner(self._options)
        try:
            keys = [key for key in self._choice.queues(planner) if self._wanted.takes(key)]
            starts = self._start.place(planner, keys)
            ends = self._end.place(planner, keys)
            if self._wanted.has_time:
                self._narrow(planner, keys, starts, ends)
            identities = planner.identities(keys)
        finally:
            planner.close()
        ranges = [QueueRange(*key, starts[key], ends[key]) for key in keys if starts[key] < ends[key]]
        return [RangesPartition(task, identities) for task in cut(self._wanted.clip(ranges), self._tasks)]

    def _narrow(
        self, planner: Planner, keys: list[QueueKey], starts: dict[QueueKey, int], ends: dict[QueueKey, int]
    ) -> None:
        """Narrow the bounds to the times of the query's filters."""
        if self._wanted.time_low_ms > 0:
            for key, offset in planner.first_at(keys, self._wanted.time_low_ms).items():
                starts[key] = max(starts[key], offset)
        if self._wanted.time_high_ms < (1 << 62):
            for key, offset in planner.first_at(keys, self._wanted.time_high_ms).items():
                ends[key] = min(ends[key], offset)

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """Read in a task."""
        return _read(_plan(self._options, self._columns, self._wanted.tag_expression), partition)


class PushingTopicReader(TopicReader):
    """A topic, read without ranges that a query's filters exclude (option ``pushFilters``).

    Off by default, because Spark (4.2 and 4.3) keeps pushed filters with the DataFrame: a second query on the same
    DataFrame, without filters, gets the rows of the first. Safe if each query calls ``load`` again (docs/adr/0008).
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Narrow the reading to the filters; Spark applies all of them to the rows."""
        self._wanted = wanted_by(filters)
        yield from filters


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic as a stream. All methods but ``read``, which tasks call, run in one process beside the driver."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._columns = check_schema(schema)
        self._choice = Choice.of(options)
        self._start = Bound.of(options, "starting", LATEST)
        self._tasks = options.number("minPartitions", 0, 0, 1_000_000)
        self._rows_max = options.number("maxOffsetsPerTrigger", 0, 1)
        self._bytes_max = options.number("maxBytesPerTrigger", 0, 1)
        self._fails = options.flag("failOnDataLoss", True)
        self._commits = "group" in options
        options.at_most_one("maxOffsetsPerTrigger", "maxBytesPerTrigger")
        _plan(options, self._columns)
        self._planner: Planner | None = None
        self._target: Positions | None = None
        """The end of a query with ``Trigger.AvailableNow``."""
        self._seen: Positions | None = None
        """The ends of the queues when last asked."""

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query."""
        planner = self._connected()
        keys = self._choice.queues(planner)
        return Positions(self._start.place(planner, keys), planner.identities(keys)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of one micro-batch."""
        if self._rows_max:
            return ReadMaxRows(self._rows_max)
        return ReadMaxBytes(self._bytes_max) if self._bytes_max else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch."""
        begin = Positions.from_json(start)
        end = self._target
        if end is None or begin.offsets.keys() - end.offsets.keys():  # a broker was away at the start, say: wait for it
            end = self._latest(begin.offsets)
            self._target = end if self._target is not None else None
        begin.check_identities(end.identities)
        self._check_ends(begin, end)
        for key in end.offsets.keys() - begin.offsets.keys():  # an added queue begins at its first message
            begin.offsets[key] = self._connected().bounds([key])[key][0]
        rows_max = 0
        if isinstance(limit, ReadMaxRows):
            rows_max = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            rows_max = max(1, int(limit.max_bytes / self._connected().mean_bytes(begin)))
        offsets = admit(begin.offsets, end.offsets, rows_max) if rows_max else dict(end.offsets)
        for key, offset in begin.offsets.items():
            offsets[key] = max(offset, offsets.get(key, offset))  # never back, also without failOnDataLoss
        known = {key: identity for key, identity in end.identities.items() if identity}
        return Positions(offsets, {**end.identities, **begin.identities, **known}).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the topics when last asked, for the query's progress."""
        known = self._target or self._seen
        return None if known is None else known.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query end where the topics end now."""
        self._target = self._latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut a micro-batch into tasks."""
        begin, stop = Positions.from_json(start), Positions.from_json(end)
        missing = [key for key in stop.offsets if key not in begin.offsets]
        if missing:
            lows = self._connected().bounds(missing)
            begin.offsets.update({key: min(lows[key][0], stop.offsets[key]) for key in missing})
        tasks = cut(ranges_between(begin, stop), self._tasks)
        return [RangesPartition(task, {**begin.identities, **stop.identities}) for task in tasks]

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """Read in a task."""
        return _read(_plan(self._options, self._columns), partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Store the offsets for the option ``group``, if given: for displays of lag, nothing else."""
        if self._commits:
            self._connected().commit(Positions.from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.close()

    def _connected(self) -> Planner:
        if self._planner is None:
            self._planner = _planner(self._options)
        return self._planner

    def _latest(self, expected: Iterable[QueueKey] = ()) -> Positions:
        planner = self._connected()
        keys = self._choice.queues(planner, expected)
        bounds = planner.bounds(keys)
        self._seen = Positions({key: bounds[key][1] for key in keys}, planner.identities(keys))
        return self._seen

    def _check_ends(self, begin: Positions, end: Positions) -> None:
        """Raise ``DataLost`` for a queue that is gone or ends before the checkpoint."""
        if not self._fails:
            return
        for key, offset in begin.offsets.items():
            now = end.offsets.get(key)
            if now is None or now < offset:
                what = "is gone" if now is None else f"ends at {now}"
                raise DataLost(
                    "messages are gone",
                    why=f"{key.topic} queue {key.queue_id} of {key.broker} {what}; the query stands at {offset}",
                    hint="was the broker's store replaced? Start with a new checkpointLocation, or set "
                    "failOnDataLoss=false to wait until it has grown past this",
                )
