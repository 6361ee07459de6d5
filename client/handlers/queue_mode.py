"""The interface between pulling and the two ways of consuming a queue.

Lives here: ``QueueMode`` (concurrent or ordered; one object of each kind a consumer), ``QueueRunner`` (one queue under
such a mode), ``ConsumeContext`` (what its consumer provides).

The life of a queue, as the consumer drives it:

    held = await mode.acquire(queues)             # ordered: the broker's locks
    runner = mode.runner(process_queue, call)
    runner.pull_pause_ms(); runner.put(messages)  # again and again, by the pull of the queue
    busy = await mode.finish([runner], timeout_s) # no further call starts; busy queues stay for now
    (the consumer commits the offset)
    await mode.release([queue])                   # ordered: unlock
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.handlers.consume_result import FailurePolicy
from pocketmq.client.handlers.handler_call import HandlerCall
from pocketmq.client.handlers.process_queue import ProcessQueue
from pocketmq.common.message import ReceivedMessage

if TYPE_CHECKING:
    from pocketmq.client.handlers.consumer_statistics import ConsumerStatistics
    from pocketmq.client.handlers.handler_watch import HandlerWatch


class QueueRunner(Protocol):
    """Hands the messages of one queue to its handler. Everything runs in the event loop's thread."""

    process_queue: ProcessQueue

    @property
    def fencing_token(self) -> int:
        """The token of the broker's lock on this queue, sent with commits; 0: none."""
        ...

    def pull_pause_ms(self) -> int:
        """Return how long this mode delays the next pull; 0: pull now."""
        ...

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Take the messages of one pull, in the queue's order; ``process_queue.pulled`` was called before.

        Bounded by the limits of the process queue. The runner calls ``process_queue.finished`` for each message, and
        ``context.drained(process_queue)`` when a full queue has room again.
        """
        ...


class QueueMode(Protocol):
    """One way of consuming, for all queues of a consumer that use it."""

    def start(self) -> None:
        """Start workers and renewals."""
        ...

    async def acquire(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """Return those of these queues that may be consumed now; the others are requested again a second later."""
        ...

    def runner(self, process_queue: ProcessQueue, call: HandlerCall) -> QueueRunner:
        """Return a runner for a queue that was acquired."""
        ...

    async def finish(self, runners: Sequence[QueueRunner], timeout_s: float) -> Sequence[QueueRunner]:
        """Start no further call for these, wait for running ones; return the runners still busy after ``timeout_s``.

        A busy queue that the mode returns stays with this consumer although it was revoked.
        """
        ...

    async def release(self, queues: Sequence[MessageQueue]) -> None:
        """Release queues; their offsets are committed. Failures are logged, not raised."""
        ...

    def fenced(self, runner: QueueRunner) -> None:
        """Note that a broker refused a commit of this queue because its lock has ended."""
        ...

    def restart(self, runner: QueueRunner) -> None:
        """Drop the pulled messages of a queue, and start again at the committed offset."""
        ...

    async def stop(self, timeout_s: float) -> None:
        """End for good: cancel calls that still run after ``timeout_s``, stop background work."""
        ...


@dataclass(slots=True, frozen=True, kw_only=True)
class ConsumeContext:
    """What a consumer provides to its modes."""

    group: str
    message_model: str
    instance: ClientInstance
    policy: FailurePolicy
    watch: "HandlerWatch"
    drained: Callable[[ProcessQueue], None]
    """Called when a full queue has room again, or may be pulled again."""
    rebalance_soon: Callable[[], None]
    """Called when a change makes a rebalance necessary."""
    concurrency: int
    consume_retry_ms: int
    """After this a message that could not be sent back is consumed again (RocketMQ: 5000)."""
    max_reconsume_times: int
    """-1: RocketMQ's default (16 concurrent, no end ordered)."""
    suspend_current_queue_time_millis: int
    statistics: "ConsumerStatistics"
    """``statistics.counts(topic)``: the counters of its handlers."""
