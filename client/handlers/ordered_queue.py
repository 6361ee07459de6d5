"""One queue in ordered consumption: its messages, the tries of its head, its rest.

Lives here: ``OrderedRunner`` (``QueueRunner``).
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from pocketmq.client.handlers.handler_call import HandlerCall
from pocketmq.client.handlers.process_queue import ProcessQueue
from pocketmq.common.message import ReceivedMessage

if TYPE_CHECKING:
    from pocketmq.client.handlers.ordered import OrderedMode

LOG_AGAIN_NS: Final = 10_000_000_000
"""Between two log lines of a queue that keeps failing."""


class OrderedRunner:
    """The messages of one queue, oldest first. A message leaves when it is done, or a dead letter.

    At any time the queue is one of: busy (a call runs), resting (after a failure), ready (waits for a worker), or none
    of these (empty, or without its lock). ``attempts``: queue offset → failures so far, for the messages at the head.
    """

    __slots__ = (
        "_by_topic",
        "_call",
        "_keys_unchecked",
        "_log_ns",
        "_mode",
        "_quiet",
        "_timer",
        "_token",
        "attempts",
        "is_busy",
        "is_ready",
        "messages",
        "process_queue",
    )

    def __init__(
        self,
        mode: "OrderedMode",
        process_queue: ProcessQueue,
        call: HandlerCall,
        by_topic: Mapping[str, HandlerCall] | None,
    ) -> None:
        self.process_queue = process_queue
        self.messages: deque[ReceivedMessage] = deque()
        self.attempts: dict[int, int] = {}
        self.is_busy = False
        self.is_ready = False
        self._mode = mode
        self._call = call
        self._by_topic = by_topic
        self._token = mode.fencing_token(process_queue.queue)
        self._quiet: asyncio.Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._log_ns = 0
        self._keys_unchecked = by_topic is None

    # -- QueueRunner -------------------------------------------------------------------------------------------

    @property
    def fencing_token(self) -> int:
        """The token with which this queue was started; a later one belongs to a new start."""
        return self._token

    def pull_pause_ms(self) -> int:
        """Return how long the next pull has to wait for the lock."""
        return self._mode.pull_pause_ms(self.process_queue.queue)

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Take messages in the queue's order; bounded by the limits of the process queue."""
        if self._quiet is not None:
            return
        if self._keys_unchecked and messages:
            self._keys_unchecked = False
            self._mode.check_keys(messages[0])
        token = self._token
        if token:
            for message in messages:
                message.under_lock(token)
        self.messages.extend(messages)
        self._mode.make_ready(self)

    # -- the head of the queue ---------------------------------------------------------------------------------

    @property
    def only_call(self) -> HandlerCall | None:
        """The handler of all messages of this queue; None in a retry topic, where it depends on the message."""
        return self._call if self._by_topic is None else None

    def call_of(self, message: ReceivedMessage) -> HandlerCall:
        """Return the handler of a message; in a retry topic it is that of the message's own topic."""
        return self._call if self._by_topic is None else self._by_topic.get(message.topic, self._call)

    def head(self) -> list[ReceivedMessage]:
        """Return the messages of the next call: one, or a batch for one handler."""
        messages = self.messages
        call = self.call_of(messages[0])
        if not call.batch_max:
            return [messages[0]]
        batch = list(islice(messages, call.batch_max))
        if self._by_topic is not None:
            other = next((at for at, message in enumerate(batch) if self.call_of(message) is not call), len(batch))
            del batch[other:]
        return batch

    def done(self, count: int) -> None:
        """Remove so many messages from the head, and count them as done."""
        popleft, finished = self.messages.popleft, self.process_queue.finished
        for _ in range(min(count, len(self.messages))):  # a close meanwhile may have emptied it
            message = popleft()
            if self.attempts:
                self.attempts.pop(message.queue_offset, None)
            finished(message)

    def failed(self, batch: Sequence[ReceivedMessage], later: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        """Keep ``later`` of the batch at the head, count the rest as done; return ``later`` in the queue's order."""
        wanted = {id(message) for message in later}
        failed = [message for message in batch if id(message) in wanted]
        for message in batch:
            if id(message) not in wanted:
                self.attempts.pop(message.queue_offset, None)
                self.process_queue.finished(message)
        for message in failed:
            attempts = self.attempts[message.queue_offset] = self.attempts.get(message.queue_offset, 0) + 1
            message.tried_here(attempts)
        if self._quiet is None:
            for _ in batch:
                self.messages.popleft()
            self.messages.extendleft(reversed(failed))
        return failed

    def given_up(self, messages: Sequence[ReceivedMessage]) -> None:
        """Count dead letters as done and remove them."""
        gone = {id(message) for message in messages}
        for message in messages:
            self.attempts.pop(message.queue_offset, None)
            self.process_queue.finished(message)
        kept: list[ReceivedMessage] = []
        while self.messages and gone:  # they are among the first
            message = self.messages.popleft()
            if id(message) in gone:
                gone.discard(id(message))
            else:
                kept.append(message)
        self.messages.extendleft(reversed(kept))

    def attempts_of(self, message: ReceivedMessage) -> int:
        """Return how often a call with a message failed here."""
        return self.attempts.get(message.queue_offset, 0)

    # -- rest and end ------------------------------------------------------------------------------------------

    @property
    def is_resting(self) -> bool:
        """Whether the queue rests after a failure."""
        return self._timer is not None

    def rest(self, suspend_ms: int) -> None:
        """Start no call for so long."""
        self._timer = asyncio.get_running_loop().call_later(suspend_ms / 1000, self._rested)

    def _rested(self) -> None:
        self._timer = None
        if self._quiet is None and self.messages:
            self._mode.make_ready(self)

    def logs(self, now_ns: int) -> bool:
        """Return whether to log a failure now: the first, then one every ten seconds."""
        if now_ns < self._log_ns:
            return False
        self._log_ns = now_ns + LOG_AGAIN_NS
        return True

    @property
    def is_closing(self) -> bool:
        """Whether no further call may start."""
        return self._quiet is not None

    def close(self) -> asyncio.Event:
        """Start no further call, drop waiting messages; the event is set when no call runs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._quiet is None:
            self._quiet = asyncio.Event()
        if not self.is_busy:
            self.messages.clear()
            self._quiet.set()
        return self._quiet

    def idle(self) -> bool:
        """Note that the worker has left; return whether a close waits for that."""
        self.is_busy = False
        if self._quiet is None:
            return False
        self.messages.clear()
        self._quiet.set()
        return True
