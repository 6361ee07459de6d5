"""Delayed rows: each is sent by itself, as RocketMQ's clients send delayed messages, and not in columns.

Lives here: ``DelayedRows``, and ``as_message_columns``, which gives the sink's own columns the names of messages.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pocketmq.client.arrow.row_records import MessageRows
from pocketmq.client.message.validation import MAX_MESSAGE_SIZE
from pocketmq.client.producer.producer import Producer
from pocketmq.common.errors import MessageIllegal, PocketMQError
from pocketmq.common.message import Message
from pocketmq.pipeline.errors import BrokerAway
from pocketmq.pipeline.sink.sink_plan import DELAY_COLUMNS, DELIVER_AT, LEVEL, USER_PROPERTIES, SinkPlan

if TYPE_CHECKING:
    from pyarrow import RecordBatch

IN_FLIGHT_MAX: Final = 500
"""Delayed messages sent at once; below the producer's own limits."""


def as_message_columns(batch: "RecordBatch") -> "RecordBatch":
    """Return a batch in which ``user_properties`` (a column of the source) is called as in a message."""
    names = batch.schema.names
    if USER_PROPERTIES not in names:
        return batch
    renamed: RecordBatch = batch.rename_columns(["properties" if name == USER_PROPERTIES else name for name in names])
    return renamed


class DelayedRows:
    """Sends the rows of a task that have a delay. ``stop`` closes its producer."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan
        self._producer: Producer | None = None
        self._rows = 0
        self.sent = 0

    async def take(self, batch: "RecordBatch") -> "RecordBatch":
        """Send the rows with a delay; return the others, without the columns of delays.

        Raises ``MessageIllegal`` (a row, by its number in the task) and ``BrokerAway``.
        """
        names: list[str] = [name for name in DELAY_COLUMNS if name in batch.schema.names]
        if not names:
            return batch
        first_row, self._rows = self._rows, self._rows + len(batch)
        levels, times_ms = _delays(batch)
        chosen = np.flatnonzero((levels != 0) | (times_ms >= 0))
        both = np.flatnonzero((levels != 0) & (times_ms >= 0))
        if len(both):
            raise MessageIllegal(
                f"row {first_row + int(both[0])} refused",
                why=f"it has {LEVEL} and {DELIVER_AT}",
                hint="set one of them to null",
            )
        rest = batch.drop_columns(names)
        if not len(chosen):
            return rest
        rows = MessageRows(rest, self._plan.topic, MAX_MESSAGE_SIZE, first_row=first_row)  # names a bad row
        is_chosen = np.zeros(len(batch), np.bool_)
        is_chosen[chosen] = True
        delayed: list[tuple[int, Message]] = []
        for topic, of_topic in rows.topics.items():
            mine = chosen if of_topic is None else of_topic[is_chosen[of_topic]]
            delayed += zip(mine.tolist(), rows.messages(topic, mine), strict=True)
        for row, message in delayed:
            message.delay_time_level = int(levels[row])
            message.deliver_time_ms = int(times_ms[row]) if times_ms[row] >= 0 else None
        for at in range(0, len(delayed), IN_FLIGHT_MAX):
            await self._send(delayed[at : at + IN_FLIGHT_MAX], first_row)
        import pyarrow

        others: RecordBatch = rest.filter(pyarrow.array(~is_chosen))
        return others

    async def stop(self) -> None:
        """Close the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def _send(self, part: list[tuple[int, Message]], first_row: int) -> None:
        plan = self._plan
        if self._producer is None:
            timeout_ms = max(1000, min(plan.wait_ms, 60_000))
            self._producer = Producer(
                plan.group, plan.namesrv, send_msg_timeout_ms=timeout_ms, **plan.access.arguments()
            )
            await self._producer.start()
        futures: list[asyncio.Future[Any]] = []
        try:
            for row, message in part:
                try:
                    futures.append(self._producer.send_nowait(message))
                except MessageIllegal as error:
                    raise MessageIllegal(f"row {first_row + row} refused", why=str(error)) from error
        finally:
            results = await asyncio.gather(*futures, return_exceptions=True)
        for result in results:
            if isinstance(result, PocketMQError) and result.retriable:
                raise BrokerAway(
                    "delayed rows not sent", why=str(result), hint="Spark tries the task again"
                ) from result
            if isinstance(result, BaseException):
                raise result
        self.sent += len(part)


def _delays(batch: "RecordBatch") -> tuple[Any, Any]:
    """Return the level of each row, 0 for none, and the time in ms since 1970, -1 for none."""
    import pyarrow as pa

    levels, times_ms = np.zeros(len(batch), np.int64), np.full(len(batch), -1, np.int64)
    if LEVEL in batch.schema.names:
        levels = np.asarray(batch.column(LEVEL).fill_null(0), np.int64)
    if DELIVER_AT in batch.schema.names:
        column = batch.column(DELIVER_AT).cast(pa.timestamp("us", tz="UTC"))
        times_us = column.cast(pa.int64())
        times_ms = np.asarray(times_us.fill_null(-1000), np.int64) // 1000
        early = np.flatnonzero((times_ms < 0) & np.asarray(column.is_valid()))
        times_ms[early] = 0  # before 1970: long due
    return levels, times_ms
