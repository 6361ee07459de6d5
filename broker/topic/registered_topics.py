"""New topics reach the name servers before their first receipt leaves.

Lives here: ``RegisteredTopics``, where threads that create topics wait for the loop that registers them.

Without it a client that asks for the route right after the receipt finds none. It takes that of the default topic,
which may promise queues that the new topic lacks. RocketMQ's brokers register a new topic before they go on, too
(TopicConfigManager.createTopicInSendMessageMethod).
"""

import threading
from collections.abc import Callable
from typing import Final

from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.events import EventLog

WAIT_MS_MAX: Final = 50
"""The longest wait for a name server. A quarter of the 200 ms after which fast failure refuses a queued send: those
behind a new topic wait along."""


class RegisteredTopics:
    """The newest table that each name server has, as a ``generation`` of the topics.

    ``publish`` belongs to worker threads, all else to the loop. A name server that does not answer is waited for once:
    it counts as away until its next answer.
    """

    wait_ms: float = WAIT_MS_MAX

    def __init__(self, topics: TopicTable, persist: Callable[[], object], log: EventLog) -> None:
        self._topics = topics
        self._persist = persist
        self._log = log
        self._changed = threading.Condition()
        self._reached: dict[str, int] = {}  # only name servers that answer
        self._loop_thread = 0

    def publish(self) -> None:
        """Return when the present topics are on disk, and known to each name server that answers in time.

        Never waits in the loop's thread, which registers. Raises ``StoreError`` if the table cannot be written; a name
        server never makes a send fail.
        """
        generation = self._topics.generation
        self._persist()
        with self._changed:
            if not self._behind(generation) or threading.get_ident() == self._loop_thread:
                return
            if self._changed.wait_for(lambda: not self._behind(generation), self.wait_ms / 1000):
                return
            silent = self._behind(generation)
            for address in silent:
                del self._reached[address]
        self._log.warning("namesrv_silent", namesrv=";".join(silent), waited_ms=self.wait_ms)

    def _behind(self, generation: int) -> list[str]:
        return [address for address, reached in self._reached.items() if reached < generation]

    def follow(self, address: str) -> None:
        """Wait for this name server from now on: its first registration is on the way."""
        self._loop_thread = threading.get_ident()
        self.reached(address, -1)

    def reached(self, address: str, generation: int) -> None:
        """Note that a name server has the topics of ``generation``."""
        with self._changed:
            self._reached[address] = generation
            self._changed.notify_all()

    def missed(self, address: str) -> None:
        """Stop waiting for a name server: it is away, or this broker does not register topics there."""
        with self._changed:
            self._reached.pop(address, None)
            self._changed.notify_all()

    def close(self) -> None:
        """Stop waiting for all of them: the broker stops."""
        with self._changed:
            self._reached.clear()
            self._changed.notify_all()
