"""Requests of a sink to brokers.

Lives here: ``write_rows`` (in a task), ``commit_parts``, ``abort_parts`` (in the driver). Each opens its own client.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pocketmq.client.arrow.arrow_records import by_topic
from pocketmq.client.arrow.row_records import MessageRows
from pocketmq.client.message.validation import MAX_MESSAGE_SIZE
from pocketmq.client.producer.producer import Producer
from pocketmq.client.staged.chunk_target import AppendTarget, NotSupportedByBrokerError
from pocketmq.client.staged.chunk_writer import ChunkWriter
from pocketmq.client.staged.staged_transaction import StagedTransactions, StagedWrite
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import Message
from pocketmq.pipeline.errors import BrokerAway, OptionIllegal
from pocketmq.pipeline.sink.delayed import DelayedRows, as_message_columns
from pocketmq.pipeline.sink.sink_plan import SinkPlan

if TYPE_CHECKING:
    from pyarrow import RecordBatch

GIVE_UP_MS: Final = 5000
"""How long a failed task tries to drop its staged rows; the rest expires."""

ResultT = TypeVar("ResultT")


def write_rows(
    plan: SinkPlan, transactional_id: str, version: int, attempt: str, turn: int, batches: "Iterable[RecordBatch]"
) -> StagedWrite:
    """Write the rows of a task; return the staged write for the driver's commit. On an error, drop the staged rows from
    all reachable brokers, and raise it.
    """
    batches = map(as_message_columns, batches)
    if not plan.transactional:
        return _write_plain(plan, StagedWrite(transactional_id, version, attempt), turn, batches)
    iterator = iter(batches)
    loop = asyncio.new_event_loop()
    transactions = StagedTransactions(plan.group, plan.namesrv, wait_ms=plan.wait_ms, **plan.access.arguments())
    try:
        loop.run_until_complete(transactions.start())
        writer = transactions.writer(
            transactional_id, version, topic=plan.topic, attempt=attempt, turn=turn, chunk_bytes=plan.chunk_bytes
        )
        try:
            for batch in iterator:
                loop.run_until_complete(writer.write(batch))
            return loop.run_until_complete(writer.close())
        except NotSupportedByBrokerError as error:
            raise OptionIllegal(
                "cannot be written as a transaction", why=str(error), hint='.option("transactional", "false")'
            ) from error
        except BaseException:
            with contextlib.suppress(PocketMQError, TimeoutError):
                part = loop.run_until_complete(writer.cancel())
                transactions.patience.wait_ms = GIVE_UP_MS
                loop.run_until_complete(transactions.abort([part]))
            raise
    finally:
        loop.run_until_complete(transactions.stop())
        loop.close()


def commit_parts(plan: SinkPlan, transactional_id: str, version: int, parts: list[StagedWrite]) -> bool:
    """Commit the staged rows; False, with a warning in the log, if an earlier run has committed the transaction."""
    if not plan.transactional:
        return True

    async def commit(transactions: StagedTransactions) -> bool:
        is_new = await transactions.commit(transactional_id, version, parts, keep_hours=plan.keep_hours)
        if not is_new:
            transactions.instance.log.warning(
                "staged_transaction_was_committed",
                transactional_id=transactional_id,
                version=version,
                rows_dropped=sum(part.rows for part in parts),
                why="an earlier run had committed it; it looks the same if a checkpoint was copied, or if two queries "
                "share one txnAppId",
            )
        return is_new

    return _with_client(plan, commit)


def abort_parts(plan: SinkPlan, parts: list[StagedWrite]) -> None:
    """Drop the staged rows; unreachable brokers drop them by age."""
    if not plan.transactional or not any(part.chunks for part in parts):
        return

    async def abort(transactions: StagedTransactions) -> None:
        transactions.patience.wait_ms = min(plan.wait_ms, GIVE_UP_MS)
        await transactions.abort(parts)

    with contextlib.suppress(PocketMQError):
        _with_client(plan, abort)


def _with_client(plan: SinkPlan, work: Callable[[StagedTransactions], Awaitable[ResultT]]) -> ResultT:
    async def run() -> ResultT:
        async with StagedTransactions(
            plan.group,
            plan.namesrv,
            wait_ms=plan.wait_ms,
            gone=plan.gone,
            fail_on_data_loss=plan.fail_on_data_loss,
            **plan.access.arguments(),
        ) as transactions:
            return await work(transactions)

    return asyncio.run(run())


def _write_plain(plan: SinkPlan, part: StagedWrite, turn: int, batches: "Iterable[RecordBatch]") -> StagedWrite:
    """Send rows without a transaction: as columns to PocketMQ, as messages to RocketMQ."""
    loop = asyncio.new_event_loop()
    transactions = StagedTransactions(plan.group, plan.namesrv, wait_ms=plan.wait_ms, **plan.access.arguments())
    target = AppendTarget(transactions.instance, transactions.patience, plan.group)
    writer = ChunkWriter(
        transactions.instance,
        target,
        topic=plan.topic,
        turn=turn,
        chunk_bytes=plan.chunk_bytes,
        in_order=False,
    )
    iterator = iter(batches)
    delayed = DelayedRows(plan)

    def run(work: Coroutine[Any, Any, ResultT]) -> ResultT:
        return loop.run_until_complete(work)

    try:
        run(transactions.start())
        try:
            for batch in iterator:
                undelayed = run(delayed.take(batch)) if plan.has_delays else batch
                try:
                    run(writer.write(undelayed))
                except NotSupportedByBrokerError:
                    if writer.chunks:
                        raise
                    return run(_send_messages(plan, part, _chained(undelayed, iterator), delayed))
            run(writer.close())
        except BaseException:
            run(writer.cancel())
            raise
        return StagedWrite(part.transactional_id, part.version, part.attempt, {}, writer.rows + delayed.sent)
    finally:
        run(delayed.stop())
        run(transactions.stop())
        loop.close()


def _chained(first: "RecordBatch", rest: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
    yield first
    yield from rest


async def _send_messages(
    plan: SinkPlan, part: StagedWrite, batches: "Iterator[RecordBatch]", delayed: DelayedRows
) -> StagedWrite:
    """Send rows to a RocketMQ broker as its producers do."""
    count = 0
    timeout_ms = max(1000, min(plan.wait_ms, 60_000))
    async with Producer(
        plan.group, plan.namesrv, send_msg_timeout_ms=timeout_ms, **plan.access.arguments()
    ) as producer:
        for each in batches:
            batch = await delayed.take(each) if plan.has_delays else each
            rows = MessageRows(batch, plan.topic, MAX_MESSAGE_SIZE, first_row=count)  # names a bad row
            try:
                await producer.send_batch(messages_of(rows))
            except PocketMQError as error:
                if error.retriable:
                    raise BrokerAway("rows not sent", why=str(error), hint="Spark tries the task again") from error
                raise
            count += len(rows)
    return StagedWrite(part.transactional_id, part.version, part.attempt, {}, count + delayed.sent)


def messages_of(rows: MessageRows) -> list[Message]:
    """Return all rows as messages, in their order."""
    found: dict[int, Message] = {}
    for topic, chosen in by_topic(rows).items():
        found.update(zip(chosen.tolist(), rows.messages(topic, chosen), strict=True))
    return [found[row] for row in range(len(rows))]
