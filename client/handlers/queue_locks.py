"""The broker's locks on the queues that a consumer reads in order: acquires, renews and releases them.

Lives here: ``QueueLocks`` (RocketMQ RebalanceImpl.lock, lockAll, unlock) and ``Lease``, its view of one lock.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pocketmq.client.connection.instance import ClientInstance, TaskSet, check_answer
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.handlers.lock_waits import LockWaits
from pocketmq.common.errors import ConfigError, PocketMQError
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import MessageQueue as QueueBody
from pocketmq.remoting.protocol.body import decode_body, encode_body
from pocketmq.remoting.protocol.lock import (
    LockBatchRequestBody,
    OwnLockBatchRequestBody,
    OwnLockBatchResponseBody,
    RefusedLock,
)

LOCK_INTERVAL_MS: Final = 20_000
"""RocketMQ's ``rocketmq.client.rebalance.lockInterval``."""
LOCK_MAX_LIVE_MS: Final = 30_000
"""RocketMQ's ``rocketmq.client.rebalance.lockMaxLiveTime`` of the client."""
LOCK_TIMEOUT_MS: Final = 1_000
"""RebalanceImpl.lock: lockBatchMQ(…, 1000)."""
TICK_MS: Final = 1_000
"""Between two checks of the leases, and between two requests for a lost one."""
QUEUES_A_REQUEST: Final = 1_000
BROKER_SHARE: Final = (3, 4)
"""A lease ends after this share of the broker's time, so that the client stops before the broker gives the lock
away."""


class Lease:
    """One lock as this client knows it. Valid until ``valid_until_ns`` (monotonic), counted from before the request was
    sent, and only while the connection that got it is open: the broker may release the lock when it breaks."""

    __slots__ = ("channel", "lost_logged", "queue", "token", "valid_until_ns")

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.token = 0
        self.valid_until_ns = 0
        self.channel: Any = None
        self.lost_logged = False

    def is_valid(self, now_ns: int) -> bool:
        """Return whether the queue may be consumed now."""
        return now_ns < self.valid_until_ns and not self.channel.closed


class QueueLocks:
    """The locks of one consumer. Belongs to the event loop's thread.

    ``lock_interval_ms``: how often they are renewed; a broker that announces its own time gets at least three renewals
    in it. ``lock_max_live_ms``: how long a lease is trusted without renewal; at most three quarters of the broker's
    time. ``regained(queue, same)`` is called when a lost lease is valid again; not ``same``: the token has changed, and
    another client may have consumed meanwhile.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        *,
        lock_interval_ms: int = LOCK_INTERVAL_MS,
        lock_max_live_ms: int = LOCK_MAX_LIVE_MS,
        regained: Callable[[MessageQueue, bool], None],
    ) -> None:
        for name, value in (("lock_interval_ms", lock_interval_ms), ("lock_max_live_ms", lock_max_live_ms)):
            if type(value) is not int or not 10 <= value <= 3_600_000:
                raise ConfigError("consumer refused", why=f"{name}={value!r} is not 10 to 3600000")
        if lock_interval_ms >= lock_max_live_ms:
            raise ConfigError(
                "consumer refused",
                why=f"lock_interval_ms={lock_interval_ms} is not below lock_max_live_ms={lock_max_live_ms}",
                hint="renew two or three times in the life of a lock",
            )
        self._instance = instance
        self._group = group
        self._interval_ms = lock_interval_ms
        self._max_live_ms = lock_max_live_ms
        self._regained = regained
        self._clock = instance.clock
        self._log = instance.log
        self._leases: dict[MessageQueue, Lease] = {}
        self._asking: dict[MessageQueue, None] = {}
        self._giving: dict[MessageQueue, None] = {}
        self._renewed_ns: dict[str, int] = {}  # broker → when its leases were last asked for
        self._broker_live_ms: dict[str, int] = {}
        self._busy: dict[str, asyncio.Lock] = {}
        self._waits = LockWaits()
        self._wake: asyncio.Event
        self._tasks = TaskSet(instance.supervisor)

    # -- life --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start renewing."""
        self._wake = asyncio.Event()
        self._tasks.keep(self._renew_loop, "pocketmq-locks")

    async def stop(self) -> None:
        """Release all locks and end; also those that a cancelled round was releasing."""
        await self._tasks.cancel()
        await self.release([*self._leases, *self._asking, *self._giving])

    # -- queries -----------------------------------------------------------------------------------------------

    def lease(self, queue: MessageQueue) -> Lease | None:
        """Return the lease of a queue that was acquired and not released."""
        return self._leases.get(queue)

    def is_valid(self, queue: MessageQueue) -> bool:
        """Return whether a queue may be consumed and pulled now; if not, its lock is requested soon."""
        lease = self._leases.get(queue)
        if lease is None:
            return False
        if lease.is_valid(self._clock.monotonic_ns()):
            return True
        self._lost(lease, "its time is over" if not lease.channel.closed else "the connection to the broker broke")
        return False

    def fenced(self, queue: MessageQueue, token: int) -> None:
        """Note that the broker refused a commit under ``token``: the lock has ended, whatever its time."""
        lease = self._leases.get(queue)
        if lease is not None and lease.token == token:
            lease.valid_until_ns = 0
            self._lost(lease, "the broker refused a commit under it")

    def token(self, queue: MessageQueue) -> int:
        """Return the fencing token of a queue; 0: none (not locked, or a broker that has no tokens)."""
        lease = self._leases.get(queue)
        return 0 if lease is None else lease.token

    def all_waits(self) -> list[dict[str, Any]]:
        """Return the reason of each wait (``LockWait.fields``), the longest first."""
        now_ns = self._clock.monotonic_ns()
        return [wait.fields(now_ns) for wait in self._waits.all()]

    # -- acquire and release ----------------------------------------------------------------------------------

    async def acquire(self, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        """Request locks; return the queues that have theirs. Failures are logged, not raised."""
        wanted = [queue for queue in queues if queue not in self._leases]
        for queue in wanted:
            self._asking[queue] = None
            self._giving.pop(queue, None)
        await asyncio.gather(*(self._lock(part) for part in _parts(wanted)))
        for queue in wanted:
            self._asking.pop(queue, None)
        self._log_waits()
        return [queue for queue in queues if queue in self._leases]

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Unlock queues and stop renewing them. Failures are logged, not raised: the lock then expires."""
        given = list(dict.fromkeys(queues))
        for queue in given:
            self._leases.pop(queue, None)
            self._asking.pop(queue, None)
            self._waits.forget(queue)
            self._giving[queue] = None
        await asyncio.gather(*(self._unlock(part) for part in _parts(given)))
        for queue in given:
            self._giving.pop(queue, None)

    # -- inside ------------------------------------------------------------------------------------------------

    async def _renew_loop(self) -> None:
        while True:
            try:
                async with asyncio.timeout(min(TICK_MS, self._interval_ms) / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self._renew_due()
                self._log_waits()
            except Exception as error:  # a fault of ours must not silently end the renewal of all locks
                self._log.error("queue_locks_failed", group=self._group, error=repr(error), exc_info=error)
            await asyncio.sleep(0.01)  # RocketMQ's pause between two tries (tryLockLaterAndReconsume), if woken often

    async def _renew_due(self) -> None:
        """Renew at each broker that is due, or that has an invalid lease."""
        now_ns = self._clock.monotonic_ns()
        brokers: set[str] = set()
        for queue, lease in self._leases.items():
            asked_ms = (now_ns - self._renewed_ns.get(queue.broker_name, 0)) // 1_000_000
            if asked_ms >= self._interval_of(queue.broker_name) or not lease.is_valid(now_ns):
                brokers.add(queue.broker_name)
        await asyncio.gather(
            *(self._lock(part) for part in _parts(q for q in self._leases if q.broker_name in brokers))
        )

    def _interval_of(self, broker_name: str) -> int:
        live_ms = self._broker_live_ms.get(broker_name, 0)
        return min(self._interval_ms, live_ms // 3) if live_ms else self._interval_ms

    def _life_of(self, broker_name: str) -> int:
        live_ms = self._broker_live_ms.get(broker_name, 0)
        share, whole = BROKER_SHARE
        return min(self._max_live_ms, live_ms * share // whole) if live_ms else self._max_live_ms

    async def _lock(self, queues: Sequence[MessageQueue]) -> None:
        """Lock or renew queues of one broker."""
        broker_name = queues[0].broker_name
        async with self._busy.setdefault(broker_name, asyncio.Lock()):
            queues = [queue for queue in queues if queue in self._leases or queue in self._asking]
            if not queues:
                return
            sent_ns = self._renewed_ns[broker_name] = self._clock.monotonic_ns()
            body = OwnLockBatchRequestBody(
                self._group, self._instance.client_id, [QueueBody(*queue) for queue in queues], True, True
            )
            try:
                connection, response = await self._ask(RequestCode.LOCK_BATCH_MQ, broker_name, body)
                answer = decode_body(response.body, OwnLockBatchResponseBody)
            except PocketMQError as error:
                self._not_asked(queues, error)
                return
            self._answered(queues, answer, connection.channel, broker_name, sent_ns)

    def _not_asked(self, queues: Sequence[MessageQueue], error: PocketMQError) -> None:
        """Keep valid leases: the broker has not refused them."""
        now_ns = self._clock.monotonic_ns()
        self._log.warning(
            "queue_locks_not_asked",
            group=self._group,
            broker=queues[0].broker_name,
            queues=len(queues),
            error=str(error),
        )
        for queue in queues:
            lease = self._leases.get(queue)
            if lease is None or not lease.is_valid(now_ns):
                self._waits.refused(queue, f"the broker did not answer: {error}", None, now_ns)

    def _answered(
        self,
        queues: Sequence[MessageQueue],
        answer: OwnLockBatchResponseBody,
        channel: Any,
        broker_name: str,
        sent_ns: int,
    ) -> None:
        if answer.lock_max_live_time > 0:
            self._broker_live_ms[broker_name] = answer.lock_max_live_time
        tokens = answer.fencing_tokens
        if len(tokens) != len(answer.lock_ok_mq_set):
            tokens = [0] * len(answer.lock_ok_mq_set)
        given = {
            MessageQueue(each.topic, each.broker_name, each.queue_id): token
            for each, token in zip(answer.lock_ok_mq_set, tokens, strict=True)
        }
        refused = {
            MessageQueue(each.queue.topic, each.queue.broker_name, each.queue.queue_id): each for each in answer.refused
        }
        until_ns = sent_ns + self._life_of(broker_name) * 1_000_000
        now_ns = self._clock.monotonic_ns()
        for queue in queues:
            if queue not in self._leases and queue not in self._asking:
                continue  # released meanwhile
            token = given.get(queue)
            if token is not None:
                self._got(queue, token, channel, until_ns, now_ns)
            else:
                self._refused(queue, refused.get(queue), now_ns)

    def _got(self, queue: MessageQueue, token: int, channel: Any, until_ns: int, now_ns: int) -> None:
        lease = self._leases.get(queue)
        was_valid, is_new = False, lease is None
        if lease is None:
            lease = self._leases[queue] = Lease(queue)
        else:
            was_valid = lease.is_valid(now_ns)
        same = token == lease.token
        lease.token, lease.channel, lease.valid_until_ns, lease.lost_logged = token, channel, until_ns, False
        wait = self._waits.got(queue)
        if wait is not None:
            self._log.info("queue_lock_got", group=self._group, token=token, **wait.fields(now_ns))
        if not is_new and not (was_valid and same):
            self._regained(queue, same)

    def _refused(self, queue: MessageQueue, refused: RefusedLock | None, now_ns: int) -> None:
        why = "another client has the lock"
        if refused is not None and refused.why == "unknown":
            why = "the broker has no such queue"
        elif refused is not None and refused.why == "full":
            why = "the broker keeps no more locks"
        lease = self._leases.get(queue)
        if lease is not None:
            lease.valid_until_ns = 0
            self._lost(lease, why, refused)
        self._waits.refused(queue, why, refused, now_ns)

    def _lost(self, lease: Lease, why: str, refused: RefusedLock | None = None) -> None:
        """Log once that a lease has ended, and check it soon."""
        if lease.lost_logged:
            return
        lease.lost_logged = True
        self._wake.set()
        fields = {}
        if refused is not None and refused.holder:
            fields = {"holder": refused.holder, "holder_age_ms": refused.age_ms, "expires_in_ms": refused.expires_in_ms}
        self._log.warning(
            "queue_lock_lost", group=self._group, queue=str(lease.queue), token=lease.token, why=why, **fields
        )
        self._waits.refused(lease.queue, why, refused, self._clock.monotonic_ns())

    def _log_waits(self) -> None:
        now_ns = self._clock.monotonic_ns()
        due, more = self._waits.due(now_ns)
        for wait in due:
            self._log.warning(
                "queue_waits_for_lock",
                group=self._group,
                **wait.fields(now_ns),
                more_queues=more,
                hint="see 'pocketmq lock list'; a client that was killed keeps its locks until they expire",
            )

    async def _unlock(self, queues: Sequence[MessageQueue]) -> None:
        broker_name = queues[0].broker_name
        body = LockBatchRequestBody(self._group, self._instance.client_id, [QueueBody(*queue) for queue in queues])
        try:
            await self._ask(RequestCode.UNLOCK_BATCH_MQ, broker_name, body)
        except PocketMQError as error:
            self._log.warning(
                "queues_not_unlocked", group=self._group, broker=broker_name, queues=len(queues), error=str(error)
            )

    async def _ask(self, code: int, broker_name: str, body: LockBatchRequestBody) -> tuple[Any, Any]:
        connection = await self._instance.connection(broker_name, timeout_ms=LOCK_TIMEOUT_MS)
        response = await connection.channel.request(code, None, encode_body(body), timeout_ms=LOCK_TIMEOUT_MS)
        check_answer(response, f"locks of {self._group} refused", connection.address)
        return connection, response


def _parts(queues: Iterable[MessageQueue]) -> list[list[MessageQueue]]:
    """Cut queues into requests: by broker, at most ``QUEUES_A_REQUEST`` each."""
    by_broker: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        by_broker.setdefault(queue.broker_name, []).append(queue)
    return [
        each[start : start + QUEUES_A_REQUEST]
        for each in by_broker.values()
        for start in range(0, len(each), QUEUES_A_REQUEST)
    ]
