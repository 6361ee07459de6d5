"""Messages that a concurrent handler did not finish.

Lives here: ``FailedMessages``: the log line (at most ten a second), the failure policy, another try here when the
policy does not take them.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pocketmq.client.handlers.consume_result import FailurePolicy, Outcome
from pocketmq.client.handlers.consumer_statistics import TopicCounts
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.message import ReceivedMessage

if TYPE_CHECKING:
    from pocketmq.client.handlers.worker_pool import PoolQueue, WorkerPool

LOGGED_A_SECOND: Final = 10
"""Limits the cost of logging when a handler fails for every message."""


class FailedMessages:
    """One a handler. Belongs to the event loop's thread."""

    def __init__(
        self, policy: FailurePolicy, consume_retry_ms: int, counts: TopicCounts, clock: Clock, log: EventLog
    ) -> None:
        self._policy = policy
        self._consume_retry_s = consume_retry_ms / 1000
        self._counts = counts
        self._clock = clock
        self._log = log
        self._second = 0
        self._logged = 0
        self._left_out = 0

    async def take(self, pool: "WorkerPool", queue: "PoolQueue", outcome: Outcome) -> None:
        """Hand the failed messages of one call to the policy; put those not taken back after the pause.

        A closing queue keeps them uncommitted, so that its next owner gets them.
        """
        process_queue = queue.process_queue
        messages = [message for message in outcome.later if process_queue.holds(message)]
        self._counts.failed += len(outcome.later)
        self._log_failure(pool.call.name, messages or outcome.later, outcome)
        if not messages or process_queue.dropped or queue.closing:
            return
        rest = await self.hand_on(messages, outcome.reason, outcome.delay_level)
        left = {id(message) for message in rest}
        process_queue.finished_all([message for message in messages if id(message) not in left])
        if process_queue.has_room_again():
            pool.drained(process_queue)
        if rest and not queue.closing:
            self._again(pool, queue, rest)

    async def hand_on(
        self, messages: Sequence[ReceivedMessage], reason: str, delay_level: int
    ) -> Sequence[ReceivedMessage]:
        """Hand messages to the policy; if it raises, it took none."""
        try:
            return await self._policy.failed(messages, reason, delay_level)
        except Exception as error:
            self._log.error("failure_policy_failed", messages=len(messages), error=repr(error), exc_info=error)
            return messages

    def _again(self, pool: "WorkerPool", queue: "PoolQueue", messages: Sequence[ReceivedMessage]) -> None:
        """Try messages once more after the pause; until then they are unfinished, and the commit waits for them."""

        def put_back() -> None:
            queue.timers.discard(timer)
            pool.put(queue, messages)

        timer = asyncio.get_running_loop().call_later(self._consume_retry_s, put_back)
        queue.timers.add(timer)

    def _log_failure(self, handler_name: str, messages: Sequence[ReceivedMessage], outcome: Outcome) -> None:
        second = self._clock.monotonic_ns() // 1_000_000_000
        if second != self._second:
            self._second, self._logged = second, 0
        if self._logged >= LOGGED_A_SECOND:
            self._left_out += 1
            return
        self._logged += 1
        left_out, self._left_out = self._left_out, 0
        log = self._log.error if outcome.error is not None else self._log.info
        log(
            "handler_failed" if outcome.error is not None else "handler_asked_for_later",
            handler=handler_name,
            message=messages[0],
            messages=len(messages),
            reason=outcome.reason,
            left_out=left_out,
            exc_info=outcome.error,
        )
