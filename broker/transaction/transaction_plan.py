"""A send that is half of a transaction: whether it is one, and where it waits.

Lives here: ``HalfPlan``: from the flag and properties of a send to the record of a half message (RocketMQ
TransactionalMessageBridge.parseHalfMessageInner), with the refusals; halves noted once they are stored.
"""

from collections.abc import Sequence
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delay.delay_plan import is_delayed
from pocketmq.broker.request.request_task import Refusal, refused
from pocketmq.broker.transaction.transaction_table import Crowded, Half, TransactionTable
from pocketmq.common import refusals
from pocketmq.common.errors import Cause, MessageIllegal
from pocketmq.common.record import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TRAN_MSG,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
)
from pocketmq.common.topics import GROUP_LENGTH_MAX, HALF_TOPIC
from pocketmq.store.append_result import AppendResult

FULL_RETRY_MS: Final = 1000
IMMUNITY_MS_MAX: Final = 7 * 86_400_000
"""Longest time that a message can ask not to be checked."""


def is_half(sys_flag: int, properties: dict[str, str]) -> bool:
    """Return whether a send is half of a transaction; raise ``MessageIllegal`` where flag and properties disagree.

    RocketMQ goes by the property alone; a transaction flag without it would make a record that no queue shows and no
    client ends.
    """
    kind = sys_flag & TRANSACTION_MASK
    transactional = properties.get(TRAN_MSG, "").lower() == "true"
    if kind not in (0, TRANSACTION_PREPARED) or (kind and not transactional):
        raise MessageIllegal(
            refusals.MESSAGE_ILLEGAL.template,
            why=f"sysFlag {sys_flag} is that of a transaction, but {TRAN_MSG} is not true",
        )
    return transactional


class HalfPlan:
    """Decides for one send thread at a time. ``table`` None: a slave, which takes no sends."""

    __slots__ = ("_config", "_table")

    def __init__(self, config: BrokerConfig, table: TransactionTable | None) -> None:
        self._config = config
        self._table = table

    def plan(self, topic: str, queue_id: int, properties: dict[str, str]) -> Refusal | tuple[str, int, Half]:
        """Return (topic, queue) in which the half message waits and what is known of it, or a refusal.

        Changes ``properties`` to those of the stored record.
        """
        group = properties.get(PGROUP, "")
        refusal = self.refusal(group, 1)
        if refusal is not None:
            return refusal
        if not group:
            return refused(Cause.BAD_REQUEST, refusals.HALF_WITHOUT_GROUP)
        if len(group) > GROUP_LENGTH_MAX:
            return refused(Cause.BAD_REQUEST, refusals.HALF_GROUP_TOO_LONG, len(group), GROUP_LENGTH_MAX)
        if is_delayed(properties):
            return refused(Cause.BAD_REQUEST, refusals.HALF_DELAYED)
        immunity_ms = immunity_of(properties)
        if immunity_ms is None:
            text = properties[CHECK_IMMUNITY_TIME_IN_SECONDS]
            return refused(Cause.BAD_REQUEST, refusals.HALF_IMMUNITY_ILLEGAL, repr(text[:40]))
        properties.pop(TRANSACTION_CHECK_TIMES, None)
        properties.pop(TRAN_PREPARED_QUEUE_OFFSET, None)
        properties[REAL_TOPIC] = topic
        properties[REAL_QID] = str(queue_id)
        return HALF_TOPIC, 0, Half(-1, -1, 0, 0, group, immunity_ms)

    def refusal(self, group: str, count: int) -> Refusal | None:
        """Return why ``count`` half messages of a producer group are not taken now, or None."""
        table = self._table
        if self._config.reject_transaction_message or table is None:
            return refused(Cause.NO_PERMISSION, refusals.BROKER_HALVES_FORBIDDEN, self._config.broker_name)
        crowded = table.refuses(group, count)
        if crowded is None:
            return None
        wait_ms, named, limit = FULL_RETRY_MS, group[:GROUP_LENGTH_MAX], table.pending_max
        if crowded is Crowded.FULL:
            return refused(Cause.MEMORY_LIMIT, refusals.HALF_TABLE_FULL, len(table), limit, retry_after_ms=wait_ms)
        if crowded is Crowded.SHARE:
            return refused(
                Cause.MEMORY_LIMIT,
                refusals.HALF_SHARE_FULL,
                table.of_group(group),
                named,
                table.share,
                retry_after_ms=wait_ms,
            )
        return refused(
            Cause.MEMORY_LIMIT, refusals.HALF_WITHOUT_PRODUCER, len(table), named, limit, retry_after_ms=wait_ms
        )

    def add(self, halves: Sequence[Half]) -> None:
        """Note half messages that are in the log now, before anybody is answered."""
        assert self._table is not None
        self._table.add_all(halves)

    def stored(self, sends: Sequence[Any], result: AppendResult) -> None:
        """Note the halves of ``sends`` (``RocketMQSend``), which are in the log now, before anybody is answered."""
        for send in sends:
            half: Half = send.half
            half.queue_offset = result.first_queue_offsets[send.position]
            half.physical_offset = result.runs[send.position][0][0]
            half.size_bytes = len(send.records[0])
            half.store_ms = result.store_timestamp
            half.record = send.records[0]
        self.add([send.half for send in sends])


def immunity_of(properties: dict[str, str]) -> int | None:
    """Return the age in ms at which a half message wants to be checked first, 0 if it does not say; None if it says
    nonsense. A negative time means the broker's (RocketMQ TransactionalMessageServiceImpl.getImmunityTime).
    """
    text = properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS, "")
    digits = text.removeprefix("-")
    if not text:
        return 0
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 9):
        return None
    immunity_ms = int(text) * 1000
    return None if immunity_ms > IMMUNITY_MS_MAX else max(0, immunity_ms)
