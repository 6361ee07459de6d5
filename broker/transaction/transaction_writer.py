"""Write decisions on half messages to the log.

Lives here: ``TransactionWriter``: reads half records; appends the messages of ended transactions together with their op
messages.

One decision, or many, is one append group: first the messages, then the op messages. After a
kill of the process a group is in the log as a whole or not at all, unless it crosses into the next segment of the log;
then only its beginning may be left: a message without its op message. The half message is open again, and ``delivered``
finds its message. A power failure can take any page of it; ``transaction_recovery`` doubts the op messages after such a
hole.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.transaction.transaction_commits import CommitGroup
from pocketmq.broker.transaction.transaction_records import op_records
from pocketmq.broker.transaction.transaction_table import Half, Outcome, TransactionTable
from pocketmq.common.clock import Clock
from pocketmq.common.errors import CorruptRecord, PocketMQError
from pocketmq.common.record import REAL_TOPIC, TRANSACTION_COMMIT, TRANSACTION_MASK, UNIQ_KEY
from pocketmq.common.record_codec import decode_record
from pocketmq.common.record_group import RecordGroup, RecordMeta
from pocketmq.common.topics import HALF_TOPIC
from pocketmq.store.append_result import AppendResult, refused
from pocketmq.store.errors import OffsetOutOfRange
from pocketmq.store.message_store import MessageStore

GROUP_BYTES_MAX: Final = 1 << 20
"""Bytes of half messages decided with one append; a larger one is decided alone."""
FIND_MAX: Final = 64

Ops = list[tuple[bytes, RecordMeta]]


@dataclass(slots=True, eq=False)
class TransactionWriter:
    """Thread-safe as far as store and table are: the end-transaction thread, the check thread and administrators use
    it.
    """

    store: MessageStore
    table: TransactionTable
    counters: BrokerCounters
    clock: Clock
    totals: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    """Transactions ended since the start."""
    put_failures: int = 0
    group_bytes_max: int = field(init=False)

    def __post_init__(self) -> None:
        self.group_bytes_max = max(1, min(GROUP_BYTES_MAX, self.store.group_bytes_max // 2))

    def contents(self, halves: Sequence[Half]) -> list[bytes | None]:
        """Return the half records as ``read`` does, those kept in memory without their offsets and store time."""
        if all(half.record is not None for half in halves):
            return [half.record for half in halves]
        return self.read(halves)

    def read(self, halves: Sequence[Half]) -> list[bytes | None]:
        """Return the half records in the given order, None for those that the log no longer has. Raises the errors of
        the disk.
        """
        if not halves:
            return []
        store = self.store
        offsets = np.array([half.physical_offset for half in halves], np.int64)
        sizes = np.array([half.size_bytes for half in halves], np.int64)
        if int((offsets + sizes).max()) > store.committed_offset:  # in a write buffer
            store.show_all()
        order = np.argsort(offsets, kind="stable")
        try:
            body = store.read_records(offsets[order], sizes[order]).tobytes()
        except (CorruptRecord, OffsetOutOfRange):
            return [store.read_record(half.physical_offset, half.size_bytes) for half in halves]
        records: list[bytes | None] = [None] * len(halves)
        at = 0
        for index, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
            records[index] = body[at : at + size]
            at += size
        return records

    def delivered(self, half: Half, record: bytes) -> bool:
        """Return whether the message of a half found at the start is in the log already: a crash has left it without
        its op message. Needs the key index; without it, or beyond its range, the answer is no.
        """
        if not half.recovered or not self.store.config.message_index_enable:
            return False
        properties = decode_record(record, check_crc=False).property_map()
        topic, key = properties.get(REAL_TOPIC, ""), properties.get(UNIQ_KEY, "")
        if not topic or not key:
            return False
        for found in self.store.query(topic, key, half.store_ms, self._until_ms(), FIND_MAX):
            message = decode_record(found, check_crc=False)
            is_committed = message.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT
            if is_committed and message.prepared_offset == half.physical_offset:
                return True
        return False

    def known_copy(self, topic: str, key: str) -> str:
        """Return why no further half message with this unique id may wait for a decision: it was committed already, or
        one waits; "" if one may. Needs the key index, as ``delivered`` does.
        """
        if not key or not self.store.config.message_index_enable:
            return ""
        until_ms = self._until_ms()
        for found in self.store.query(topic, key, 0, until_ms, FIND_MAX):
            if decode_record(found, check_crc=False).sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT:
                return "it was committed already"
        places = {half.physical_offset for half in self.table.pending()}
        for found in self.store.query(HALF_TOPIC, key, 0, until_ms, FIND_MAX):
            if decode_record(found, check_crc=False).physical_offset in places:
                return "it waits for a decision already"
        return ""

    def _until_ms(self) -> int:
        """Return a time behind all that is stored: the log's times do not follow a clock that is set back."""
        return max(self.clock.now_ms(), self.store.log.last_store_timestamp) + 1

    def end(self, messages: Sequence[tuple[bytes, RecordMeta]], ended: Sequence[tuple[Half, Outcome]]) -> AppendResult:
        """Append ``messages`` and the op messages for all of ``ended`` (claimed) as one group; note the outcomes, or
        release the halves when it was not stored. Consumers see the messages after the next dispatch.
        """

        def made(ops: Ops) -> RecordGroup:
            records, metas = zip(*messages, *ops, strict=True)
            return RecordGroup.from_records(records, metas)

        return self._end(made, len(messages), sum(len(record) for record, _ in messages), ended)

    def end_commits(self, messages: CommitGroup, ended: Sequence[tuple[Half, Outcome]]) -> AppendResult:
        """Do the same as ``end``, with messages that were made together."""
        return self._end(messages.group, len(messages), messages.size_bytes, ended)

    def _end(
        self,
        made: Callable[[Ops], RecordGroup],
        count: int,
        size_bytes: int,
        ended: Sequence[tuple[Half, Outcome]],
    ) -> AppendResult:
        store, table = self.store, self.table
        ops = op_records([half.queue_offset for half, _ in ended], self.clock.now_ms(), store.store_host)
        try:
            result = store.append(made(ops), dispatch_later=True)
        except PocketMQError as error:
            result = refused(error)
        if not result.status.is_stored:
            self.put_failures += 1
            self.counters.put_failed(count)
            for half, _ in ended:
                table.release(half)
            return result
        self.counters.put(count, size_bytes)
        table.ops_end_at(result.first_queue_offsets[-1] + len(ops))
        table.finish_all(ended)
        totals = self.totals
        for _, outcome in ended:
            totals[outcome] += 1
        return result

    def forget(self, half: Half) -> None:
        """End a claimed half message that the log no longer has."""
        self.table.finish(half, Outcome.LOST)
        self.totals[Outcome.LOST] += 1
