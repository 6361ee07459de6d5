"""Decisions on half messages become log.

Lives here: ``TransactionWriter``: reads half records; appends the messages of ended transactions together with the op
messages that end them.

One decision, or many, is one append group: first the messages, then the op messages. A group is in the log as a whole
or not at all after a kill of the process, unless it crosses into the next segment of the log; then a beginning of it
can be what is left: a message without its op message. The half message is open again, and ``delivered`` finds that its
message is there already. A power failure can take any page of it; ``transaction_recovery`` doubts the op messages that
lie behind such a hole.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.transaction.transaction_commits import CommitGroup
from pocketmq.broker.transaction.transaction_records import op_records
from pocketmq.broker.transaction.transaction_table import Half, Outcome, TransactionTable
from pocketmq.common.clock import Clock
from pocketmq.common.errors import CorruptRecord, PocketMQError
from pocketmq.common.properties import REAL_TOPIC, UNIQ_KEY
from pocketmq.common.record import TRANSACTION_COMMIT, TRANSACTION_MASK
from pocketmq.common.record_codec import decode_record
from pocketmq.common.record_group import RecordGroup, RecordMeta
from pocketmq.common.topics import HALF_TOPIC
from pocketmq.store.append_result import AppendResult, refused
from pocketmq.store.errors import OffsetOutOfRange
from pocketmq.store.message_store import MessageStore

GROUP_BYTES_MAX: Final = 1 << 20
"""Bytes of half messages that are decided with one append; a larger one goes alone."""
FIND_MAX: Final = 64

Ops = list[tuple[bytes, RecordMeta]]


class TransactionWriter:
    """Thread-safe as far as store and table are: the end-transaction thread, the check thread and administrators use
    it. Counters since the start: ``committed``, ``rolled_back``, ``given_up``, ``lost``, ``put_failures``.
    """

    def __init__(self, store: MessageStore, table: TransactionTable, counters: BrokerCounters, clock: Clock) -> None:
        self._store = store
        self._table = table
        self._counters = counters
        self._clock = clock
        self.totals: dict[Outcome, int] = dict.fromkeys(Outcome, 0)
        self.put_failures = 0
        self.group_bytes_max = max(1, min(GROUP_BYTES_MAX, store.group_bytes_max // 2))

    def contents(self, halves: Sequence[Half]) -> list[bytes | None]:
        """Return the half records as ``read`` does, those kept in memory without their offsets and store time."""
        if all(half.record is not None for half in halves):
            return [half.record for half in halves]
        return self.read(halves)

    def read(self, halves: Sequence[Half]) -> list[bytes | None]:
        """Return the half records in the order asked for, None for those that the log does not have any more. Raises
        what the disk raises.
        """
        if not halves:
            return []
        store = self._store
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
        """Tell whether the message of a half that was found at the start is in the log already: a crash had left it
        without its op message. Needs the key index; without it, or beyond what it knows, the answer is no.
        """
        if not half.recovered or not self._store.config.message_index_enable:
            return False
        properties = decode_record(record, check_crc=False).property_map()
        topic, key = properties.get(REAL_TOPIC, ""), properties.get(UNIQ_KEY, "")
        if not topic or not key:
            return False
        now_ms = self._clock.now_ms()
        for found in self._store.query(topic, key, half.store_ms, max(now_ms, half.store_ms) + 1, FIND_MAX):
            message = decode_record(found, check_crc=False)
            is_committed = message.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT
            if is_committed and message.prepared_offset == half.physical_offset:
                return True
        return False

    def known_copy(self, topic: str, key: str) -> str:
        """Return why no further half message with this unique id may wait for a decision, or nothing: it was committed
        already, or one waits. Needs the key index, as ``delivered`` does.
        """
        if not key or not self._store.config.message_index_enable:
            return ""
        until_ms = self._clock.now_ms() + 1
        for found in self._store.query(topic, key, 0, until_ms, FIND_MAX):
            if decode_record(found, check_crc=False).sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT:
                return "it was committed already"
        places = {half.physical_offset for half in self._table.pending()}
        for found in self._store.query(HALF_TOPIC, key, 0, until_ms, FIND_MAX):
            if decode_record(found, check_crc=False).physical_offset in places:
                return "it waits for a decision already"
        return ""

    def end(self, messages: Sequence[tuple[bytes, RecordMeta]], ended: Sequence[tuple[Half, Outcome]]) -> AppendResult:
        """Append ``messages`` and the op messages for all of ``ended`` (claimed), as one group; note the outcomes, or
        release the halves when nothing was stored. Consumers see it after the next dispatch.
        """

        def made(ops: Ops) -> RecordGroup:
            records, metas = zip(*messages, *ops, strict=True)
            return RecordGroup.from_records(records, metas)

        return self._end(made, len(messages), sum(len(record) for record, _ in messages), ended)

    def end_commits(self, messages: CommitGroup, ended: Sequence[tuple[Half, Outcome]]) -> AppendResult:
        """Do what ``end`` does, with messages that were made together."""
        return self._end(messages.group, len(messages), messages.size_bytes, ended)

    def _end(
        self,
        made: Callable[[Ops], RecordGroup],
        count: int,
        size_bytes: int,
        ended: Sequence[tuple[Half, Outcome]],
    ) -> AppendResult:
        store, table = self._store, self._table
        ops = op_records([half.queue_offset for half, _ in ended], self._clock.now_ms(), store.store_host)
        try:
            result = store.append(made(ops), dispatch_later=True)
        except PocketMQError as error:
            result = refused(error)
        if not result.status.is_stored:
            self.put_failures += 1
            self._counters.put_failed(count)
            for half, _ in ended:
                table.release(half)
            return result
        self._counters.put(count, size_bytes)
        table.ops_end_at(result.first_queue_offsets[-1] + len(ops))
        table.finish_all(ended)
        totals = self.totals
        for _, outcome in ended:
            totals[outcome] += 1
        return result

    def forget(self, half: Half) -> None:
        """End a claimed half message that the log does not have any more."""
        self._table.finish(half, Outcome.LOST)
        self.totals[Outcome.LOST] += 1
