"""Single messages: by key, and by their offset in the log.

Lives here: QUERY_MESSAGE and VIEW_MESSAGE_BY_ID (RocketMQ QueryMessageProcessor).
"""

from typing import Any, Final

from pocketmq.auth.stored import check_stored
from pocketmq.broker.request.executor import OneByOne
from pocketmq.broker.request.request_task import Buffers, Drain, Task, encode_answer
from pocketmq.common.errors import CorruptRecord
from pocketmq.common.record_codec import decode_record
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.access import GET
from pocketmq.remoting.protocol.pull import QueryMessageResponseHeader
from pocketmq.store.message_store import MessageStore

UNIQUE_KEY_NUM: Final = 32
"""Maximum messages for a query by unique key (RocketMQ defaultQueryMaxNum)."""
QUERY_NUM_MAX: Final = 64
"""RocketMQ maxMsgsNumBatch."""
INDEX_BEHIND: Final = "; the index is behind, not all messages were searched"
INDEX_OFF: Final = "; the index of this broker is off"
"""Our addition to RocketMQ's text: without the index no key is ever found."""
BODY_BYTES_MAX: Final = 8 << 20
"""Well below the frame limit; a query that finds more returns fewer messages."""


class QueryProcessor(OneByOne):
    """Serves codes 12 and 33."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def serve(self, task: Task, drain: Drain) -> None:
        """Answer one request."""
        by_id = task.request.code == RequestCode.VIEW_MESSAGE_BY_ID
        drain.answer(task, self._view(task) if by_id else self._query(task))

    def _view(self, task: Task) -> Buffers:
        header: Any = task.request.header
        record = self._store.read_record(header.offset) if header.offset >= 0 else None
        if record is not None and not self._is_in_its_queue(record, header.offset):
            record = None
        if record is None:
            text = f"can not find message by the offset, {header.offset}"
            if 0 <= header.offset < self._store.log.min_offset:
                text += f": it was removed, the log begins at {self._store.log.min_offset}"
            return encode_answer(task.request, ResponseCode.SYSTEM_ERROR, remark=text)
        check_stored(task.request, decode_record(record, check_crc=False).topic, GET)
        _pay(task, 1, len(record))
        return encode_answer(task.request, body=record)

    def _is_in_its_queue(self, record: bytes, offset: int) -> bool:
        """Return whether the queue that a record names has it. Without this an offset inside a body would return what
        its sender made up, with any topic, host and time."""
        try:
            message = decode_record(record, check_crc=False)
        except CorruptRecord:
            return False
        place = message.topic, message.queue_id, message.queue_offset
        if self._offset_in_queue(*place) == offset:
            return True
        self._store.show_all()  # it may have been stored just now
        return self._offset_in_queue(*place) == offset

    def _offset_in_queue(self, topic: str, queue_id: int, queue_offset: int) -> int:
        queue = self._store.consume_queues.get(topic, queue_id)
        entries = [] if queue is None else queue.read(queue_offset, 1)["offset"].tolist()
        return int(entries[0]) if entries else -1

    def _query(self, task: Task) -> Buffers:
        header: Any = task.request.header
        max_num = UNIQUE_KEY_NUM if header.unique_key_query else max(1, min(header.max_num, QUERY_NUM_MAX))
        records, index = self._store.find(
            header.topic, header.key, header.begin_timestamp, header.end_timestamp, max_num, BODY_BYTES_MAX
        )
        behind = "" if index.complete else INDEX_BEHIND
        if not records:
            text = "can not find message, maybe time range not correct"
            text += behind if self._store.index.enabled else INDEX_OFF
            return encode_answer(task.request, ResponseCode.QUERY_NOT_FOUND, remark=text)
        _pay(task, len(records), sum(map(len, records)))
        return encode_answer(
            task.request,
            remark=behind.removeprefix("; "),
            header=QueryMessageResponseHeader(index.last_update_timestamp, index.last_update_physical_offset),
            body=b"".join(records),
        )


def _pay(task: Task, messages: int, size_bytes: int) -> None:
    """Take messages that leave from the connection's quota, if it has one; what an administrator reads is not
    refused."""
    quota = task.connection.quota
    if quota is not None:
        quota.sent(messages, size_bytes, task.created_ns)
