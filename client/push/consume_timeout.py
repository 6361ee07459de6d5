"""Handlers that take too long.

Lives here: ``ConsumeTimeout``: a slow call is logged once; one that outlasts the consume timeout gives its messages
back, as RocketMQ does (ProcessQueue.cleanExpiredMsg), and another worker takes its place.
"""

from pocketmq.client.handlers.consume_result import FailurePolicy
from pocketmq.client.handlers.handler_watch import HandlerWatch, RunningCall
from pocketmq.client.handlers.handlers import ConcurrentMode
from pocketmq.client.push.consumer_options import ConsumerOptions
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog

TIMEOUT_DELAY_LEVEL = 3
"""ProcessQueue.cleanExpiredMsg sends back with level 3."""


class ConsumeTimeout:
    """Checks the running calls of a consumer; ``check`` is called about once a second."""

    def __init__(
        self,
        watch: HandlerWatch,
        mode: ConcurrentMode,
        policy: FailurePolicy,
        options: ConsumerOptions,
        clock: Clock,
        log: EventLog,
    ) -> None:
        self._watch = watch
        self._mode = mode
        self._policy = policy
        self._slow_ns = options.slow_handler_ms * 1_000_000
        self._timeout_ns = options.consume_timeout_ms * 1_000_000
        self._clock = clock
        self._log = log

    async def check(self) -> None:
        """Log slow calls, and take the messages of hung ones away."""
        now_ns = self._clock.monotonic_ns()
        for call in self._watch.running():
            age_ns = now_ns - call.since_ns
            message = call.message
            if message is None:
                continue
            if age_ns >= self._timeout_ns and call.may_time_out and call.timed_out is not message:
                await self._time_out(call, age_ns)
            elif age_ns >= self._slow_ns and call.slow_logged is not message and call.timed_out is not message:
                call.slow_logged = message
                self._log.warning(
                    "handler_slow",
                    handler=call.handler_name,
                    message=message,
                    messages=len(call.messages),
                    age_ms=age_ns // 1_000_000,
                    consume_timeout_ms=self._timeout_ns // 1_000_000,
                )

    async def _time_out(self, call: RunningCall, age_ns: int) -> None:
        process_queue, messages, message = call.process_queue, list(call.messages), call.message
        assert process_queue is not None
        call.timed_out = message
        self._log.error(
            "consume_timeout",
            handler=call.handler_name,
            message=message,
            messages=len(messages),
            queue=str(process_queue.queue),
            age_ms=age_ns // 1_000_000,
            what_happens="its messages go back for a later try; the call goes on, and its answer is ignored",
            hint="find out what blocks the handler; give its calls time limits",
        )
        reason = f"{call.handler_name} did not return within {age_ns // 1_000_000} ms"
        held = [each for each in messages if process_queue.holds(each)]
        rest = await self._policy.failed(held, reason, TIMEOUT_DELAY_LEVEL)
        left = {id(each) for each in rest}
        process_queue.finished_all([each for each in held if id(each) not in left])
        self._mode.room_made(process_queue)
        if left:
            call.timed_out = None  # not taken: the next check tries again
        elif call.message is message:
            self._mode.replace_worker(call.task)
