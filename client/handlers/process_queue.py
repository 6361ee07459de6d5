"""The messages of one queue between pull and handler: which are unfinished, which are done, how far the group may
commit.

Lives here: the rule of commits (the smallest unfinished offset, else the end of the last pull), the limits on
unfinished messages.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.common.errors import ConfigError

LIMIT_MAX = (1 << 63) - 1


@dataclass(slots=True, frozen=True)
class ProcessLimits:
    """When a queue is pulled no further (DefaultMQPushConsumer.java: pullThresholdForQueue, pullThresholdSizeForQueue,
    consumeConcurrentlyMaxSpan, pullThresholdForTopic, pullThresholdSizeForTopic).

    Counts of messages, sizes in bytes. The limits of a topic are shared evenly by its queues and then replace those of
    a queue; -1: off.
    """

    count_max: int = 1000
    size_bytes_max: int = 100 << 20
    span_max: int = 2000
    topic_count_max: int = -1
    topic_size_bytes_max: int = -1

    def __post_init__(self) -> None:
        for name in ("count_max", "size_bytes_max", "span_max"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= LIMIT_MAX:
                raise ConfigError("limits refused", why=f"{name}={value!r}", hint=f"1 to {LIMIT_MAX}")
        for name in ("topic_count_max", "topic_size_bytes_max"):
            value = getattr(self, name)
            if type(value) is not int or not (value == -1 or 1 <= value <= LIMIT_MAX):
                raise ConfigError("limits refused", why=f"{name}={value!r}", hint=f"-1 (off), or 1 to {LIMIT_MAX}")

    def shared_by(self, queues: int, *, ordered: bool = False) -> "ProcessLimits":
        """Return the limits for one of so many queues of a topic (RebalancePushImpl.messageQueueChanged).

        Ordered consumption has no span (DefaultMQPushConsumerImpl.pullMessage).
        """
        count, size_bytes = self.count_max, self.size_bytes_max
        if self.topic_count_max != -1:
            count = max(1, self.topic_count_max // max(1, queues))
        if self.topic_size_bytes_max != -1:
            size_bytes = max(1, self.topic_size_bytes_max // max(1, queues))
        return ProcessLimits(count, size_bytes, LIMIT_MAX if ordered else self.span_max)


class Held(Protocol):
    """The counted attributes of a message (``ReceivedMessage``)."""

    queue_offset: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole record."""
        ...


class ProcessQueue:
    """One queue that this consumer holds.

    Offsets count messages. Holds: ``commit_offset`` never exceeds the offset of the oldest unfinished message; it never
    goes back. After ``drop`` nothing is committed: the queue may belong to another consumer.
    """

    __slots__ = (
        "_done",
        "_open",
        "commit_offset",
        "dropped",
        "limits",
        "next_pull_offset",
        "queue",
        "size_bytes",
        "wants_room",
    )

    def __init__(self, queue: MessageQueue, start_offset: int, limits: ProcessLimits) -> None:
        self.queue = queue
        self.next_pull_offset = start_offset
        self.commit_offset = start_offset
        self.dropped = False
        self.size_bytes = 0
        self.limits = limits
        self.wants_room = False
        """The pull found the queue full and waits for room."""
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
        """Take the messages of one pull; ``next_offset`` is where the next one starts (past messages that did not
        match)."""
        opened = self._open
        for message in messages:
            opened.append(message.queue_offset)
            self.size_bytes += message.size_bytes
        self.next_pull_offset = next_offset
        if not opened:
            self.commit_offset = max(self.commit_offset, next_offset)

    def moved(self, offset: int) -> None:
        """Continue at another offset: the broker no longer has, or does not yet have, the requested one.

        The commit follows once all messages are done; it may go back here, because the old position does not exist.
        """
        self.next_pull_offset = offset
        if not self._open:
            self.commit_offset = offset

    def finished(self, message: Held) -> None:
        """Count one message as done, in any order; the commit offset follows when it was the oldest.

        A message that was already finished is ignored.
        """
        offset = message.queue_offset
        opened, done = self._open, self._done
        if not opened or offset != opened[0]:
            if opened and offset > opened[0] and offset not in done:
                done.add(offset)
                self.size_bytes -= message.size_bytes
            return
        self.size_bytes -= message.size_bytes
        opened.popleft()
        while done and opened and opened[0] in done:
            done.remove(opened.popleft())
        self.commit_offset = opened[0] if opened else max(self.next_pull_offset, offset + 1)

    def finished_all(self, messages: Sequence[Held]) -> None:
        """Count several as done."""
        for message in messages:
            self.finished(message)

    def holds(self, message: Held) -> bool:
        """Return whether a message is pulled and not done."""
        offset = message.queue_offset
        return bool(self._open) and offset >= self._open[0] and offset not in self._done

    @property
    def room(self) -> int:
        """How many more messages the limit on the count allows."""
        return self.limits.count_max - len(self._open)

    @property
    def oldest_offset(self) -> int | None:
        """The offset of the oldest unfinished message."""
        return self._open[0] if self._open else None

    def has_room_again(self) -> bool:
        """Return True once when a full queue has room again."""
        if not self.wants_room or self.full():
            return False
        self.wants_room = False
        return True

    def full(self) -> str:
        """Return why the queue is pulled no further now, or an empty string."""
        limits = self.limits
        if len(self._open) >= limits.count_max:
            return "count"
        if self.size_bytes >= limits.size_bytes_max:
            return "size"
        if self._open and self._open[-1] - self._open[0] > limits.span_max:
            return "span"
        return ""

    def drop(self) -> None:
        """Give the queue up: its messages may still finish, but are not committed here."""
        self.dropped = True
