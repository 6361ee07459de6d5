"""Which topics a connection sends to, from samples: the path of a send pays nothing.

Some twenty times a second the requests of one drain are looked at, so a client that sends steadily is known after
a moment, and one that sends to many topics with the last ``TOPICS_MAX`` that were seen.

Lives here: ``note_topic``, ``sent_topics``, ``SendSamples``.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from pocketmq.broker.stats.stage_times import SEND_PAIR, RequestTiming
from pocketmq.remoting.codec import Request
from pocketmq.remoting.connection import Connection

TOPICS_MAX: Final = 16
"""Topics remembered of a connection: the latest ones."""
TOPIC_CHARS_MAX: Final = 255
REQUESTS_MAX: Final = 16
"""Requests of a drain that are looked at."""
SAMPLE_INTERVAL_NS: Final = 50_000_000


def note_topic(connection: Connection, topic: str) -> None:
    """Remember that a connection sent to a topic. Any thread."""
    known = connection.sent_topics
    if topic not in known:
        if len(known) >= TOPICS_MAX:
            known.pop(next(iter(known.copy()), ""), None)
        known[topic[:TOPIC_CHARS_MAX]] = None


def sent_topics(connection: Connection) -> list[str]:
    """Return the topics that a connection was seen to send to, sorted. Any thread."""
    return sorted(connection.sent_topics.copy())


class SendSamples:
    """Looks at sends of the wide way, whose requests name their topic."""

    def __init__(self, topic_of: Callable[[Request], str]) -> None:
        self._topic_of = topic_of
        self._next_ns = 0

    def finished(self, timing: RequestTiming, now_ns: int) -> None:
        """Look at requests that were answered, if it is time."""
        if timing[0] != SEND_PAIR or now_ns < self._next_ns:
            return
        self._next_ns = now_ns + SAMPLE_INTERVAL_NS
        entries: Sequence[Any] = timing[1]
        for entry in entries[:REQUESTS_MAX]:
            task = getattr(entry, "task", entry)
            topic = self._topic_of(task.request)
            if topic:
                note_topic(task.connection, topic)
