"""What a push consumer logs of pulls that fail: a broker that stops fails one in each queue, every second.

Lives here: ``PullFailures``.
"""

from typing import Final

from pocketmq.client.errors import BrokerAnswerError
from pocketmq.common.clock import Clock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import EventLog

AGAIN_NS: Final = 10_000_000_000
"""The same failure at the same broker is logged again after this time."""
KINDS_MAX: Final = 1_000


class PullFailures:
    """One a consumer. A failure is logged once for a broker and a kind of error, then at most every ten seconds, with
    the number of lines left out. Belongs to the event loop's thread."""

    def __init__(self, clock: Clock, log: EventLog) -> None:
        self._clock = clock
        self._log = log
        self._kinds: dict[tuple[str, str, int], tuple[int, int]] = {}
        """Broker, class and code → when it was logged last, and lines left out since."""

    def note(self, broker_name: str, queue: str, error: PocketMQError) -> None:
        """Log the failed pull of a queue, or count it."""
        code = error.answer_code if isinstance(error, BrokerAnswerError) else 0
        kind = (broker_name, type(error).__name__, code)
        now_ns = self._clock.monotonic_ns()
        logged_ns, left_out = self._kinds.get(kind, (now_ns - AGAIN_NS, 0))
        if now_ns - logged_ns < AGAIN_NS:
            self._kinds[kind] = logged_ns, left_out + 1
            return
        if len(self._kinds) >= KINDS_MAX:
            self._kinds.clear()
        self._kinds[kind] = now_ns, 0
        self._log.warning("pull_failed", queue=queue, error=str(error), left_out=left_out)
