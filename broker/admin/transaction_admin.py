"""Open transactions for administrators.

Lives here: TRANSACTION_LIST (ours) and RESUME_CHECK_HALF_MESSAGE.
"""

from dataclasses import dataclass
from typing import Any, Final

from pocketmq.auth.stored import check_stored
from pocketmq.broker.admin.admin_refused import AdminRefused
from pocketmq.broker.request.default_processor import Handler
from pocketmq.broker.request.request_task import Buffers, Task, encode_answer
from pocketmq.broker.transaction.transaction_plan import immunity_of
from pocketmq.broker.transaction.transaction_records import HalfIllegal, HalfRecords
from pocketmq.broker.transaction.transaction_table import Half, TransactionTable
from pocketmq.broker.transaction.transaction_writer import TransactionWriter
from pocketmq.common.errors import CorruptRecord
from pocketmq.common.events import EventLog
from pocketmq.common.message_id import parse_offset_msg_id
from pocketmq.common.record import PGROUP, UNIQ_KEY
from pocketmq.common.record_codec import decode_record
from pocketmq.common.record_group import RecordGroup
from pocketmq.common.topics import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import UPDATE
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.transaction import OpenTransaction, TransactionList
from pocketmq.store.message_store import MessageStore

LIST_MAX: Final = 1000


@dataclass(slots=True, eq=False)
class TransactionAdmin:
    """Handlers about transactions. Admin worker thread."""

    store: MessageStore
    table: TransactionTable
    writer: TransactionWriter
    log: EventLog

    def handlers(self) -> dict[int, Handler]:
        """Return code → handler."""
        return {RequestCode.TRANSACTION_LIST: self._list, RequestCode.RESUME_CHECK_HALF_MESSAGE: self._resume}

    def _list(self, task: Task) -> Buffers:
        header: Any = task.request.header
        count = min(max(header.count, 1), LIST_MAX)
        halves = sorted(
            (half for half in self.table.pending() if half.queue_offset >= header.from_offset),
            key=lambda half: half.queue_offset,
        )
        more = halves[count].queue_offset if len(halves) > count else -1
        body = TransactionList(total=len(self.table), next_offset=more)
        records = HalfRecords(self.store.store_host)
        chosen = halves[:count]
        for half, record in zip(chosen, self._read(chosen), strict=True):
            topic = uniq_key = ""
            if record is not None:
                try:  # one damaged record must not hide the others
                    uniq_key = decode_record(record, check_crc=False).property_map().get(UNIQ_KEY, "")
                    topic = records.target(record)[0]
                except (HalfIllegal, CorruptRecord):
                    topic = "?"
            body.transactions.append(
                OpenTransaction(
                    queue_offset=half.queue_offset,
                    physical_offset=half.physical_offset,
                    producer_group=half.producer_group,
                    topic=topic,
                    uniq_key=uniq_key,
                    store_timestamp=half.store_ms,
                    checks=half.checks,
                )
            )
        return encode_answer(task.request, body=encode_body(body))

    def _read(self, halves: list[Half]) -> list[bytes | None]:
        """Read records in parts of bounded size."""
        records: list[bytes | None] = []
        for first in range(0, len(halves), 32):
            records += self.writer.read(halves[first : first + 32])
        return records

    def _resume(self, task: Task) -> Buffers:
        """Make a given-up half message wait again, with its checks at 0 (RocketMQ AdminBrokerProcessor
        .resumeCheckHalfMessage). Its copy in ``TRANS_CHECK_MAX_TIME_TOPIC`` stays.
        """
        header: Any = task.request.header
        _, offset = parse_offset_msg_id(header.msg_id)
        record = self.store.read_record(offset)
        if record is None:
            raise AdminRefused("not resumed", why=f"no message is at offset {offset}")
        decoded = decode_record(record, check_crc=False)
        if decoded.topic != TRANS_CHECK_MAX_TIME_TOPIC:
            raise AdminRefused(
                "not resumed",
                why=f"the message is of topic {decoded.topic}",
                hint=f"give the id of one in {TRANS_CHECK_MAX_TIME_TOPIC}",
            )
        records = HalfRecords(self.store.store_host)
        try:
            topic, _ = records.target(record)
            again, meta = records.half_again(record)
        except (HalfIllegal, CorruptRecord) as error:
            raise AdminRefused("not resumed", why=str(error)) from error
        check_stored(task.request, topic, UPDATE)
        properties = decoded.property_map()
        if not self.table.withdraw(decoded.prepared_offset):
            raise AdminRefused("not resumed", why="a late decision on it is being written")
        known = self.writer.known_copy(topic, properties.get(UNIQ_KEY, ""))
        if known:
            raise AdminRefused("not resumed", why=known, hint="a message must not be delivered twice")
        result = self.store.append(RecordGroup.from_records([again], [meta]))
        if not result.status.is_stored:
            raise AdminRefused(
                f"put message back to {HALF_TOPIC} failed",
                why=f"{result.status.name} {result.error}".rstrip(),
                cause=result.cause,
                retry_after_ms=result.retry_after_ms,
            )
        half = Half(
            result.first_queue_offsets[0],
            result.runs[0][0][0],
            len(again),
            result.store_timestamp,
            properties.get(PGROUP, ""),
            immunity_of(properties) or 0,
        )
        self.table.add(half)
        self.log.info("half_message_resumed", queue_offset=half.queue_offset, group=half.producer_group)
        return encode_answer(task.request)
