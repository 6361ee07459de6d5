"""The messages of one queue between pull and handler: what is in hand, what is done, how far the group may commit.

Lives here: the ordering rule of commits (smallest unfinished, else the end of what was pulled), the limits on what is
in hand.
Not here: pulling, running handlers (``push_consumer``); the broker's lock on a queue and the order of handlers belong
to ordered consumption, an issue of its own: ``ProcessQueue`` gets its ``locked`` state there.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pocketmq.client.rebalance import MessageQueue


@dataclass(slots=True, frozen=True)
class ProcessLimits:
    """When a queue is pulled no further (DefaultMQPushConsumer.java)."""

    count_max: int = 1000
    size_bytes_max: int = 100 << 20
    span_max: int = 2000


class Held(Protocol):
    """What is counted of a message (``ReceivedMessage``)."""

    queue_offset: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole record."""
        ...


class ProcessQueue:
    """One queue that this consumer holds.

    Offsets count messages. Holds: ``commit_offset`` never exceeds the offset of the oldest unfinished message; it never
    goes back. After ``drop`` nothing is committed any more: the queue may belong to another consumer.
    """

    __slots__ = ("_done", "_limits", "_open", "commit_offset", "dropped", "next_pull_offset", "queue", "size_bytes")

    def __init__(self, queue: MessageQueue, start_offset: int, limits: ProcessLimits) -> None:
        self.queue = queue
        self.next_pull_offset = start_offset
        self.commit_offset = start_offset
        self.dropped = False
        self.size_bytes = 0
        self._limits = limits
        self._open: deque[int] = deque()
        self._done: set[int] = set()

    def __len__(self) -> int:
        """How many messages were pulled and are not yet below the commit offset."""
        return len(self._open)

    @property
    def unfinished(self) -> int:
        """How many messages a handler still has to finish."""
        return len(self._open) - len(self._done)

    def pulled(self, messages: Sequence[Held], next_offset: int) -> None:
        """Take what one pull brought; ``next_offset`` is where the next one starts (past what did not match)."""
        opened = self._open
        for message in messages:
            opened.append(message.queue_offset)
            self.size_bytes += message.size_bytes
        self.next_pull_offset = next_offset
        if not opened:
            self.commit_offset = max(self.commit_offset, next_offset)

    def moved(self, offset: int) -> None:
        """Go on elsewhere: the broker no longer has, or does not have yet, what was asked for.

        The commit follows once nothing is in hand; it may go back here, because the old position does not exist.
        """
        self.next_pull_offset = offset
        if not self._open:
            self.commit_offset = offset

    def finished(self, message: Held) -> None:
        """Count one message as done, in any order; the commit offset follows when it was the oldest."""
        offset = message.queue_offset
        self.size_bytes -= message.size_bytes
        opened, done = self._open, self._done
        if not opened or offset != opened[0]:
            done.add(offset)
            return
        opened.popleft()
        while opened and opened[0] in done:
            done.remove(opened.popleft())
        self.commit_offset = opened[0] if opened else max(self.next_pull_offset, offset + 1)

    def full(self) -> str:
        """Return why the queue is pulled no further now, or an empty string."""
        limits = self._limits
        if len(self._open) >= limits.count_max:
            return "count"
        if self.size_bytes >= limits.size_bytes_max:
            return "size"
        if self._open and self._open[-1] - self._open[0] > limits.span_max:
            return "span"
        return ""

    def drop(self) -> None:
        """Give the queue up: what is in hand may still finish, but is not committed here."""
        self.dropped = True
