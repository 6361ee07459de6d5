"""Requests about queue locks.

Lives here: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42), and our LOCK_LIST and LOCK_RELEASE (30600, 30601).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.broker.admin.admin_refused import AdminRefused
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.lock.lock_manager import Lock, LockManager
from pocketmq.broker.lock.lock_table import Granted, LockKey, Result
from pocketmq.broker.request.default_processor import Handler
from pocketmq.broker.request.request_task import Buffers, Task, encode_answer
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.limits import CLIENT_ID_LENGTH_MAX
from pocketmq.common.topics import check_group_name
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import MessageQueue, decode_body, encode_body
from pocketmq.remoting.protocol.lock import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    LockInfo,
    LockTableBody,
    LockWaiter,
    OwnLockBatchRequestBody,
    OwnLockBatchResponseBody,
    RefusedLock,
)
from pocketmq.remoting.server import Connection

QUEUES_MAX: Final = 16_384
"""Queues in one request: a group has one lock per queue, and a body of 16 MiB could name 200,000."""
LIST_MAX: Final = 20_000
"""Locks in one answer of LOCK_LIST: about 8 MiB of JSON."""


class LockGone(PocketMQError):
    """The lock to release does not exist any longer."""

    code = 22  # QUERY_NOT_FOUND
    default_cause = Cause.BAD_REQUEST


@dataclass(slots=True, eq=False)
class LockAdmin:
    """Handlers about queue locks. They have a worker thread of their own: nothing that reads the log holds them up."""

    config: BrokerConfig
    lock_manager: LockManager
    topics: TopicTable
    is_slave: bool

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
            RequestCode.LOCK_LIST: self._list,
            RequestCode.LOCK_RELEASE: self._release,
        }

    def _lock(self, task: Task) -> Buffers:
        """Lock the free queues. A queue that this broker lacks is refused; RocketMQ locks it."""
        body = decode_body(task.request.body, OwnLockBatchRequestBody)
        self._check(body, "lock")
        asked = list(dict.fromkeys(body.mq_set))
        here = [queue for queue in asked if self._exists(queue)]
        results = self.lock_manager.try_lock(
            body.consumer_group,
            body.client_id,
            task.connection,
            [(queue.topic, queue.queue_id) for queue in here],
            watches_connection=body.watches_connection,
        )
        held = [(queue, each) for queue, each in zip(here, results, strict=True) if _is_given(each)]
        if not body.fencing:
            answer: Any = LockBatchResponseBody(lock_ok_mq_set=[queue for queue, _ in held])
            return encode_answer(task.request, body=encode_body(answer))
        known = set(here)
        refused = [RefusedLock(queue, why="unknown") for queue in asked if queue not in known]
        refused += [
            self._refused(queue, each) for queue, each in zip(here, results, strict=True) if not _is_given(each)
        ]
        answer = OwnLockBatchResponseBody(
            lock_ok_mq_set=[queue for queue, _ in held],
            fencing_tokens=[each.lock.token for _, each in held if each.lock is not None],
            lock_max_live_time=self.config.lock_max_live_time,
            refused=refused,
        )
        return encode_answer(task.request, body=encode_body(answer))

    def _unlock(self, task: Task) -> Buffers:
        body = decode_body(task.request.body, LockBatchRequestBody)
        self._check(body, "unlock")
        queues = [(queue.topic, queue.queue_id) for queue in body.mq_set if self._is_ours(queue)]
        self.lock_manager.unlock(body.consumer_group, body.client_id, list(dict.fromkeys(queues)))
        return encode_answer(task.request)

    def _check(self, body: LockBatchRequestBody, what: str) -> None:
        if self.is_slave:
            # two brokers would each give the same lock
            raise AdminRefused(
                f"{what} refused", why="this broker is a slave", hint="ask the master", cause=Cause.NOT_MASTER
            )
        check_group_name(body.consumer_group)
        if not 0 < len(body.client_id) <= CLIENT_ID_LENGTH_MAX:
            raise AdminRefused(
                f"{what} refused", why=f"a client id of {len(body.client_id)} characters", hint="1 to 1024"
            )
        if len(body.mq_set) > QUEUES_MAX:
            raise AdminRefused(
                f"{what} refused",
                why=f"{len(body.mq_set)} queues in one request, more than {QUEUES_MAX}",
                hint="use several requests",
            )

    def _is_ours(self, queue: MessageQueue) -> bool:
        return queue.broker_name in ("", self.config.broker_name)

    def _exists(self, queue: MessageQueue) -> bool:
        config = self.topics.get(queue.topic) if self._is_ours(queue) else None
        return config is not None and 0 <= queue.queue_id < max(config.read_queue_nums, config.write_queue_nums)

    def _refused(self, queue: MessageQueue, granted: Granted[Connection]) -> RefusedLock:
        lock = granted.lock
        if lock is None:
            return RefusedLock(queue, why="full")
        now_ns = self.lock_manager.now_ns()
        return RefusedLock(
            queue,
            why="held",
            holder=lock.client_id,
            holder_address=lock.connection.remote,
            age_ms=(now_ns - lock.acquired_ns) // 1_000_000,
            expires_in_ms=self.lock_manager.expires_in_ms(lock, now_ns),
        )

    def _list(self, task: Task) -> Buffers:
        header: Any = task.request.header
        locks, now_ns = self.lock_manager.locks(header.consumer_group, header.topic)
        shown = max(0, min(header.locks_max, LIST_MAX))
        body = LockTableBody(
            broker_name=self.config.broker_name,
            lock_max_live_time=self.config.lock_max_live_time,
            locks=list(self._infos(locks[:shown], now_ns)),
            left_out=max(0, len(locks) - shown),
        )
        return encode_answer(task.request, body=encode_body(body))

    def _infos(self, locks: list[Lock], now_ns: int) -> Iterable[LockInfo]:
        for lock in locks:
            release_in_ms = -1
            if lock.release_at_ns is not None:
                release_in_ms = max(0, lock.release_at_ns - now_ns) // 1_000_000
            yield LockInfo(
                consumer_group=lock.key.group,
                topic=lock.key.topic,
                queue_id=lock.key.queue_id,
                client_id=lock.client_id,
                address=lock.connection.remote,
                age_ms=(now_ns - lock.acquired_ns) // 1_000_000,
                renewed_ms_ago=(now_ns - lock.renewed_ns) // 1_000_000,
                expires_in_ms=self.lock_manager.expires_in_ms(lock, now_ns),
                release_in_ms=release_in_ms,
                fencing_token=lock.token,
                waiting=[
                    LockWaiter(
                        client_id,
                        (now_ns - each.first_ns) // 1_000_000,
                        (now_ns - each.last_ns) // 1_000_000,
                        each.refusals,
                    )
                    for client_id, each in lock.waiters.items()
                ],
            )

    def _release(self, task: Task) -> Buffers:
        header: Any = task.request.header
        key = LockKey(header.consumer_group, header.topic, header.queue_id)
        if self.lock_manager.release(key, header.fencing_token, task.connection.remote) is None:
            raise LockGone(
                f"no lock of {header.consumer_group[:255]} on {header.topic[:127]} queue {header.queue_id} with token "
                f"{header.fencing_token}",
                hint="another client has it, or it is free: list the locks again",
            )
        return encode_answer(task.request)


def _is_given(granted: Granted[Connection]) -> bool:
    return granted.result in (Result.GOT, Result.RENEWED, Result.TAKEN_OVER)
