"""How a consumer works off its queues: the seam between pulling and the two ways of consuming.

Lives here: ``QueueMode`` (concurrent or ordered; one object of each kind a consumer), ``QueueRunner`` (one queue under
such a mode), ``ConsumeContext`` (what a mode gets from its consumer).

The life of a queue, as the consumer drives it:

    held = await mode.acquire(queues)             # ordered: the broker's locks
    runner = mode.runner(process_queue, call)
    runner.pull_pause_ms(); runner.put(messages)  # again and again, by the pull of the queue
    busy = await mode.finish([runner], timeout_s) # nothing further starts; who is still busy stays for now
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
        """The token of the broker's lock that covers this queue, sent along with commits; 0: there is none."""
        ...

    def pull_pause_ms(self) -> int:
        """Return how long the next pull has to wait for reasons of the mode; 0: pull now."""
        ...

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Take what one pull brought, in the queue's order; ``process_queue.pulled`` was called before.

        Bounded by the limits of the process queue. The runner calls ``process_queue.finished`` for each message, and
        ``context.drained(process_queue)`` when a full queue has room again.
        """
        ...


class QueueMode(Protocol):
    """One way of consuming, for all queues of a consumer that use it."""

    def start(self) -> None:
        """Begin: workers, renewals."""
        ...

    async def acquire(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """Return those of these queues that may be consumed now; the rest is asked for again a second later."""
        ...

    def runner(self, process_queue: ProcessQueue, call: HandlerCall) -> QueueRunner:
        """Return what works off a queue that was acquired."""
        ...

    async def finish(self, runners: Sequence[QueueRunner], timeout_s: float) -> Sequence[QueueRunner]:
        """Start no further handler for these, wait for those that run; return who is still busy after ``timeout_s``.

        A queue that is taken away stays with this consumer while it is busy, if the mode says so by returning it.
        """
        ...

    async def release(self, queues: Sequence[MessageQueue]) -> None:
        """Give back what ``acquire`` got; their offsets are committed. Failures are logged, not raised."""
        ...

    def fenced(self, runner: QueueRunner) -> None:
        """Learn that a broker has refused a commit of this queue, because its lock is over."""
        ...

    def restart(self, runner: QueueRunner) -> None:
        """Give up what is in hand of a queue, and begin anew at the committed offset."""
        ...

    async def stop(self, timeout_s: float) -> None:
        """End for good: cancel what still runs after ``timeout_s``, stop background work."""
        ...


@dataclass(slots=True, frozen=True, kw_only=True)
class ConsumeContext:
    """What a mode gets from its consumer."""

    group: str
    message_model: str
    instance: ClientInstance
    policy: FailurePolicy
    watch: "HandlerWatch"
    drained: Callable[[ProcessQueue], None]
    """A full queue has room again, or may be pulled again: look at once."""
    rebalance_soon: Callable[[], None]
    """Something changed that a rebalance should look at."""
    concurrency: int
    consume_retry_ms: int
    """After this a message that could not be sent back is consumed again (RocketMQ: 5000)."""
    max_reconsume_times: int
    """-1: RocketMQ's default (16 concurrent, no end ordered)."""
    suspend_current_queue_time_millis: int
    statistics: "ConsumerStatistics"
    """``statistics.counts(topic)``: where a mode counts what its handlers did."""
