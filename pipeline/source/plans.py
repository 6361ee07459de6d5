"""What the readers of topics share: their options, the plan of a task, and its partition.

Lives here: ``BATCH_OPTIONS``, ``STREAM_OPTIONS``, ``make_plan``, ``make_planner``, ``Cut``, ``RangesPartition``,
``read_partition``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from pocketmq.client.pull.subscription import parse_subscription
from pocketmq.common.errors import PocketMQError
from pocketmq.pipeline.access import ACCESS_OPTIONS, Access
from pocketmq.pipeline.errors import OptionIllegal
from pocketmq.pipeline.options import Options
from pocketmq.pipeline.servers import namesrv_of
from pocketmq.pipeline.source.planner import Planner
from pocketmq.pipeline.source.positions import QueueRange, cut
from pocketmq.pipeline.source.range_reader import ReadPlan, read_ranges
from pocketmq.pipeline.source.worker import settle

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
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
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
STREAM_OPTIONS: Final = (
    *COMMON_OPTIONS,
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)
DEFAULT_GROUP: Final = "pocketmq-spark"
PULL_BYTES_MAX: Final = 4 << 20
BATCH_ROWS: Final = 10_000
"""Batches of 2,000 to 10,000 rows are best for Spark's Python workers (measured; 50,000 and more are slower)."""
BROKER_WAIT_MS: Final = 300_000


class RangesPartition(InputPartition):
    """The work of one task, and the identities of its topics."""

    def __init__(self, ranges: Sequence[QueueRange], identities: Mapping[tuple[str, str], str]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)
        self.identities = {(each.topic, each.broker): identities.get((each.topic, each.broker), "") for each in ranges}


def read_partition(plan: ReadPlan, partition: InputPartition) -> "Iterator[RecordBatch]":
    """Return the rows of a task; Spark runs an empty plan with None."""
    if isinstance(partition, RangesPartition):
        try:
            yield from read_ranges(plan, partition.ranges, partition.identities)
        finally:
            settle()


class Cut:
    """How ranges become tasks: the options ``minPartitions`` and ``maxRecordsPerPartition``."""

    def __init__(self, options: Options) -> None:
        self._tasks = options.number("minPartitions", 0, 0, 1_000_000)
        self._rows_max = options.number("maxRecordsPerPartition", 0, 1)

    def tasks(
        self, ranges: Iterable[QueueRange], identities: Mapping[tuple[str, str], str]
    ) -> Sequence[InputPartition]:
        """Return the work of each task."""
        return [RangesPartition(task, identities) for task in cut(ranges, self._tasks, self._rows_max)]


def make_planner(options: Options) -> Planner:
    """Return the client of the driver."""
    wait_ms = options.number("brokerWaitMs", BROKER_WAIT_MS, 0, 86_400_000)
    return Planner(namesrv_of(options), options.text("group", DEFAULT_GROUP), wait_ms, Access.of(options))


def make_plan(options: Options, columns: tuple[str, ...], tags: str = "") -> ReadPlan:
    """Return how tasks read. ``tags``: from filters; empty: those of the option."""
    return ReadPlan(
        namesrv=namesrv_of(options),
        group=options.text("group", DEFAULT_GROUP),
        columns=columns,
        pull_bytes=options.number("pullBytes", PULL_BYTES_MAX, 1, PULL_BYTES_MAX),
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
