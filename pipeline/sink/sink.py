"""``df.write.format("pocketmq")`` and ``df.writeStream.format("pocketmq")``: rows become messages of topics.

Lives here: the classes that Spark calls.

Tasks stage their rows at the brokers, invisible; the driver commits all rows of a job or a micro-batch, or none. The
transaction is (query, micro-batch) or (job): when Spark writes a micro-batch again, because the driver died between the
commit and its checkpoint, the brokers recognize it and change nothing. The checkpoint keeps the id of the query: a new
checkpoint is a new query, and its rows are new ones.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pocketmq.client.staged.staged_transaction import StagedWrite
from pocketmq.pipeline.errors import OptionIllegal
from pocketmq.pipeline.options import Options
from pocketmq.pipeline.servers import check_hosts
from pocketmq.pipeline.sink.sink_plan import SinkPlan
from pocketmq.pipeline.sink.sink_task import abort_parts, commit_parts, write_rows

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Spark's local properties of a task (StreamExecution, MicroBatchExecution)."""


@dataclass
class PartMessage(WriterCommitMessage):
    """The message of a task to the driver."""

    part: StagedWrite


class TopicWriter(DataSourceArrowWriter):
    """A batch write. Created in the driver, copied into each task."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        _refuse_overwrite(overwrite)
        self._plan = _checked(SinkPlan.of(options, schema, streaming=False))

    def write(self, iterator: Iterator[Any]) -> PartMessage:
        """Stage the rows of a task, which come as Arrow batches."""
        plan = self._plan
        return PartMessage(write_rows(plan, plan.transactional_id, plan.version, _attempt(), _turn(), iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make all rows messages."""
        commit_parts(self._plan, self._plan.transactional_id, self._plan.version, _parts(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop the rows of tasks that ended; other tasks have dropped theirs, or these expire."""
        abort_parts(self._plan, _parts(messages))


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write. Created for each micro-batch, in tasks and in the driver's helper processes."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        _refuse_overwrite(overwrite)
        self._plan = _checked(SinkPlan.of(options, schema, streaming=True))

    def write(self, iterator: Iterator[Any]) -> PartMessage:
        """Stage the rows of a task, which come as Arrow batches."""
        transactional_id, version = self._identity()
        return PartMessage(write_rows(self._plan, transactional_id, version, _attempt(), _turn(), iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Make all rows of the micro-batch messages, unless an earlier run of it has."""
        parts = _parts(messages)
        identities = {(part.transactional_id, part.version) for part in parts}
        if not identities:
            if self._plan.transactional_id:  # an earlier run of the micro-batch may have had rows
                commit_parts(self._plan, self._plan.transactional_id, batchId, [])
            return
        if len(identities) > 1 or next(iter(identities))[1] != batchId:
            raise OptionIllegal(
                "not committed",
                why=f"tasks wrote for {sorted(identities)}, Spark commits micro-batch {batchId}",
                hint="report this as a bug of the sink",
            )
        commit_parts(self._plan, parts[0].transactional_id, batchId, parts)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Drop the rows of tasks that ended. Committed rows stay: Spark also aborts after a commit whose success it
        does not know.
        """
        abort_parts(self._plan, _parts(messages))

    def _identity(self) -> tuple[str, int]:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY_ID)
        batch = None if context is None else context.getLocalProperty(BATCH_ID)
        if not query or batch is None:
            raise OptionIllegal(
                "not written",
                why=f"Spark did not say which query and micro-batch this is ({QUERY_ID}, {BATCH_ID})",
                hint="continuous processing is not supported; use a trigger by processing time or availableNow",
            )
        return self._plan.transactional_id or f"spark-{query}", int(batch)


def _checked(plan: SinkPlan) -> SinkPlan:
    if TaskContext.get() is None:  # in the driver, once
        check_hosts(plan.namesrv)
    return plan


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise OptionIllegal(
            "cannot be written", why="a topic cannot be overwritten", hint='.mode("append"), outputMode("append")'
        )


def _attempt() -> str:
    """Return an id that no other attempt has, of this or another run."""
    context = TaskContext.get()
    task = "" if context is None else f"{context.partitionId()}-{context.taskAttemptId()}-"
    return task + uuid.uuid4().hex[:16]


def _turn() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[StagedWrite]:
    return [message.part for message in messages if isinstance(message, PartMessage)]
