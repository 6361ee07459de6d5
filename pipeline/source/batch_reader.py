"""A topic as a table: batch queries.

Lives here: ``TopicReader``, ``PushingTopicReader``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from pocketmq.pipeline.errors import OptionIllegal
from pocketmq.pipeline.options import Options
from pocketmq.pipeline.source.columns import check_schema
from pocketmq.pipeline.source.planner import Planner
from pocketmq.pipeline.source.plans import Cut, make_plan, make_planner, read_partition
from pocketmq.pipeline.source.positions import QueueKey, QueueRange
from pocketmq.pipeline.source.pushdown import Wanted, wanted_by
from pocketmq.pipeline.source.starting import EARLIEST, LATEST, Bound, Choice

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class TopicReader(DataSourceReader):
    """A topic as it is when the query is planned. Bounds come from options."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._columns = check_schema(schema)
        self._choice = Choice.of(options)
        self._start = Bound.of(options, "starting", EARLIEST)
        self._end = Bound.of(options, "ending", LATEST)
        self._wanted = Wanted()
        self._cut = Cut(options)
        self._fails = options.flag("failOnDataLoss", True)
        make_plan(options, self._columns)  # refuses bad options now, not in a task
        for name, word, empty in (("starting", self._start.word, LATEST), ("ending", self._end.word, EARLIEST)):
            if word == empty:
                raise OptionIllegal("bad option", why=f"{name}Offsets={word} in a batch query reads nothing")

    def partitions(self) -> Sequence[InputPartition]:
        """Ask the brokers for the bounds of the queues, and cut the wanted ranges into tasks."""
        planner = make_planner(self._options)
        try:
            keys = [key for key in self._choice.queues(planner) if self._wanted.takes(key)]
            starts = self._start.place(planner, keys, clamps=not self._fails)
            ends = self._end.place(planner, keys, clamps=not self._fails)
            _check_order(starts, ends)
            if self._wanted.has_time:
                self._narrow(planner, keys, starts, ends)
            identities = planner.identities(keys)
        finally:
            planner.close()
        ranges = [QueueRange(*key, starts[key], ends[key]) for key in keys if starts[key] < ends[key]]
        return self._cut.tasks(self._wanted.clip(ranges), identities)

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
        return read_partition(make_plan(self._options, self._columns, self._wanted.tag_expression), partition)


class PushingTopicReader(TopicReader):
    """A topic, read without ranges that a query's filters exclude (option ``pushFilters``).

    Off by default, because Spark (4.2 and 4.3) keeps pushed filters with the DataFrame: a second query on the same
    DataFrame, without filters, gets the rows of the first. Safe if each query calls ``load`` again (docs/adr/0008).
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Narrow the reading to the filters; Spark applies all of them to the rows."""
        self._wanted = wanted_by(filters)
        yield from filters


def _check_order(starts: Mapping[QueueKey, int], ends: Mapping[QueueKey, int]) -> None:
    """Raise ``OptionIllegal`` for a queue whose end lies before its start."""
    for key, start in starts.items():
        if start > ends[key]:
            raise OptionIllegal(
                "bad options",
                why=f"{key.text}: the start, offset {start}, lies behind the end, offset {ends[key]}",
                hint="check starting… and ending…: offsets or times",
            )
