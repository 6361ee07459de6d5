"""A topic as a stream.

Lives here: ``TopicStreamReader``.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pocketmq.pipeline.errors import DataLost, OptionIllegal
from pocketmq.pipeline.options import Options
from pocketmq.pipeline.source.columns import check_schema
from pocketmq.pipeline.source.notes import print_note
from pocketmq.pipeline.source.planner import Planner, QueuesGone
from pocketmq.pipeline.source.plans import Cut, make_plan, make_planner, read_partition
from pocketmq.pipeline.source.positions import Positions, QueueKey, admit, ranges_between
from pocketmq.pipeline.source.starting import LATEST, Bound, Choice

if TYPE_CHECKING:
    from pyarrow import RecordBatch


TRIGGER_DELAY_MS: Final = 15 * 60_000
"""Spark's Kafka source has the same default of maxTriggerDelay."""


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic as a stream. All methods but ``read``, which tasks call, run in one process beside the driver."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._columns = check_schema(schema)
        self._choice = Choice.of(options)
        self._start = Bound.of(options, "starting", LATEST)
        self._cut = Cut(options)
        self._rows_max = options.number("maxOffsetsPerTrigger", 0, 1)
        self._bytes_max = options.number("maxBytesPerTrigger", 0, 1)
        self._rows_min = options.number("minOffsetsPerTrigger", 0, 1)
        self._delay_s = options.duration_ms("maxTriggerDelay", TRIGGER_DELAY_MS) / 1000
        self._fails = options.flag("failOnDataLoss", True)
        self._commits = "group" in options
        options.at_most_one("maxOffsetsPerTrigger", "maxBytesPerTrigger")
        if self._rows_max and self._rows_min > self._rows_max:
            raise OptionIllegal("bad options", why="minOffsetsPerTrigger is above maxOffsetsPerTrigger")
        if "maxTriggerDelay" in options and not self._rows_min:
            raise OptionIllegal("bad options", why="maxTriggerDelay means nothing without minOffsetsPerTrigger")
        make_plan(options, self._columns)
        self._planner: Planner | None = None
        self._target: Positions | None = None
        """The end of a query with ``Trigger.AvailableNow``."""
        self._seen: Positions | None = None
        """The ends of the queues when last asked."""
        self._stored: dict[QueueKey, int] | None = None
        """The offsets that the group has."""
        self._batch_at_s: float | None = None
        """When the last micro-batch was given out."""
        self._told: set[QueueKey] = set()

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query."""
        planner = self._connected()
        keys = self._choice.queues(planner)
        offsets = self._start.place(planner, keys, clamps=not self._fails)
        return Positions(offsets, planner.identities(keys)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of one micro-batch."""
        if self._rows_max:
            return ReadMaxRows(self._rows_max)
        return ReadMaxBytes(self._bytes_max) if self._bytes_max else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch. Spark calls this when the one before is done, and once more at the
        end of a query with ``Trigger.AvailableNow``.
        """
        begin = Positions.from_json(start)
        if self._commits:
            self._store(begin)
        self._drop_left_out(begin)
        end = self._target
        if end is None or begin.offsets.keys() - end.offsets.keys():  # a broker was away at the start, say: wait for it
            end = self._latest(begin)
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
        if self._waits_for_more(begin.offsets, offsets):
            return start
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
        return self._cut.tasks(ranges_between(begin, stop), {**begin.identities, **stop.identities})

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """Read in a task."""
        return read_partition(make_plan(self._options, self._columns), partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Store the offsets for the option ``group``, if given: for displays of lag, nothing else."""
        if self._commits:
            self._store(Positions.from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.close()

    def _connected(self) -> Planner:
        if self._planner is None:
            self._planner = make_planner(self._options)
        return self._planner

    def _latest(self, begin: Positions | None = None) -> Positions:
        """Return the ends of the queues now. Queues that are gone are taken from ``begin`` without failOnDataLoss."""
        planner = self._connected()
        expected = Positions() if begin is None else begin
        while True:
            try:
                keys = self._choice.queues(planner, expected.offsets, absent_ok=not self._fails)
                break
            except QueuesGone as gone:
                if self._fails:
                    raise DataLost(
                        "queues are gone",
                        why=f"{_listed(gone.keys)}: the broker is there and has them no longer",
                        hint="was the topic deleted? Start with a new checkpointLocation, or set failOnDataLoss=false "
                        "to go on without them",
                    ) from gone
                print_note(f"queues are gone, and the query goes on without them: {_listed(gone.keys)}")
                expected.drop(gone.keys)
        bounds = planner.bounds(keys)
        self._seen = Positions({key: bounds[key][1] for key in keys}, planner.identities(keys))
        return self._seen

    def _drop_left_out(self, begin: Positions) -> None:
        """Take queues from ``begin`` that the options no longer choose; with failOnDataLoss that is an error."""
        left_out = self._choice.left_out(begin.offsets)
        if not left_out:
            return
        if self._fails:
            raise OptionIllegal(
                "checkpoint refused",
                why=f"it has {_listed(left_out)}, which the options leave out now",
                hint="name them again, start with a new checkpointLocation, or set failOnDataLoss=false to drop them",
            )
        if not self._told.issuperset(left_out):
            self._told.update(left_out)
            print_note(f"the options leave out queues of the checkpoint, dropped: {_listed(left_out)}")
        begin.drop(left_out)

    def _store(self, positions: Positions) -> None:
        """Store the offsets of the group, unless it has them."""
        if positions.offsets != self._stored:
            self._connected().commit(positions)
            self._stored = dict(positions.offsets)

    def _waits_for_more(self, begin: Mapping[QueueKey, int], offsets: Mapping[QueueKey, int]) -> bool:
        """Return whether there are too few rows yet for a micro-batch (``minOffsetsPerTrigger``)."""
        now_s = time.monotonic()
        rows = sum(offsets[key] - begin.get(key, offsets[key]) for key in offsets)
        is_late = self._batch_at_s is None or now_s - self._batch_at_s >= self._delay_s
        if self._target is None and rows < self._rows_min and not is_late:
            return True
        if rows:
            self._batch_at_s = now_s
        return False

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


def _listed(keys: Sequence[QueueKey]) -> str:
    """Return the topics of queues, and how many queues of each."""
    counts = Counter(key.topic for key in keys)
    return ", ".join(f"{topic} ({count} {'queue' if count == 1 else 'queues'})" for topic, count in counts.items())
