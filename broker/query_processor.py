"""Single messages: by key, and by their place in the log.

Lives here: QUERY_MESSAGE and VIEW_MESSAGE_BY_ID (RocketMQ QueryMessageProcessor).
Not here: the index (``store.index``).
"""

from typing import Any, Final

from pocketmq.broker.executor import OneByOne
from pocketmq.broker.task import Buffers, Drain, Task, encode_answer
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import QueryMessageResponseHeader
from pocketmq.store.message_store import MessageStore

UNIQUE_KEY_NUM: Final = 32
"""Messages at most for a look-up by unique key (RocketMQ defaultQueryMaxNum)."""
QUERY_NUM_MAX: Final = 64
"""RocketMQ maxMsgsNumBatch."""
BODY_BYTES_MAX: Final = 8 << 20
"""What fits well below the frame limit; a query that finds more says so by finding fewer."""


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
        if record is None:
            text = f"can not find message by the offset, {header.offset}"
            return encode_answer(task.request, ResponseCode.SYSTEM_ERROR, remark=text)
        return encode_answer(task.request, body=record)

    def _query(self, task: Task) -> Buffers:
        header: Any = task.request.header
        max_num = UNIQUE_KEY_NUM if header.unique_key_query else max(1, min(header.max_num, QUERY_NUM_MAX))
        records = self._store.query(header.topic, header.key, header.begin_timestamp, header.end_timestamp, max_num)
        if not records:
            text = "can not find message, maybe time range not correct"
            return encode_answer(task.request, ResponseCode.QUERY_NOT_FOUND, remark=text)
        taken: list[bytes] = []
        size_bytes = 0
        for record in records:
            size_bytes += len(record)
            if taken and size_bytes > BODY_BYTES_MAX:
                break
            taken.append(record)
        newest = max(int.from_bytes(record[28:36], "big") for record in taken)
        return encode_answer(
            task.request,
            header=QueryMessageResponseHeader(
                index_last_update_timestamp=header.end_timestamp, index_last_update_phyoffset=newest
            ),
            body=b"".join(taken),
        )
