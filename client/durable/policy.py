"""Rules of the retry: which messages are kept, how often and for how long they are resent, with which pauses.

Lives here: ``RetryRule``, the kinds of messages, the pauses. Pure.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pocketmq.client.message.request_message import ReplyMessage, RequestMessage
from pocketmq.client.message.transaction_message import HalfMessage
from pocketmq.client.sender.retry import backoff_ms
from pocketmq.common.errors import ConfigError
from pocketmq.common.message import Message

PLAIN, DELAYED, TRANSACTIONAL, REQUEST = "plain", "delayed", "transactional", "request"
KINDS: frozenset[str] = frozenset({PLAIN, DELAYED, TRANSACTIONAL, REQUEST})
KEPT_KINDS: frozenset[str] = frozenset({PLAIN, DELAYED})
"""Kinds that can be kept. A half message belongs to its local branch, a request to the caller waiting for its reply; a
resend after these are gone would be wrong."""

_DAY_MS = 24 * 3600 * 1000


def kind_of(message: Message) -> str:
    """Return the kind of a message."""
    if isinstance(message, HalfMessage):
        return TRANSACTIONAL
    if isinstance(message, RequestMessage | ReplyMessage):
        return REQUEST
    return DELAYED if message.delay_time_level or message.is_timed else PLAIN


@dataclass(slots=True, frozen=True, kw_only=True)
class RetryRule:
    """How to treat messages of some topics and kinds; times in ms.

    ``topics``: names or patterns with ``*`` and ``?``. ``kinds``: of ``KEPT_KINDS``. ``keep`` False: never kept, the
    caller gets the error of the send. ``attempts_max``: resends, each with the producer's own attempts. A pause doubles
    from ``backoff_ms_first`` to ``backoff_ms_max``, shortened at random by up to a quarter.
    """

    topics: Collection[str] = ("*",)
    kinds: Collection[str] = KEPT_KINDS
    keep: bool = True
    attempts_max: int = 1_000
    age_ms_max: int = 3 * _DAY_MS
    backoff_ms_first: int = 1_000
    backoff_ms_max: int = 30_000

    def __post_init__(self) -> None:
        if isinstance(self.topics, str) or not all(isinstance(topic, str) and topic for topic in self.topics):
            raise ConfigError(
                "retry rule refused", why=f"topics={self.topics!r}", hint='for instance topics=("Orders",)'
            )
        if isinstance(self.kinds, str) or not set(self.kinds) <= KEPT_KINDS:
            raise ConfigError(
                "retry rule refused", why=f"kinds={self.kinds!r}", hint=f"some of {', '.join(sorted(KEPT_KINDS))}"
            )
        if self.attempts_max < 1 or self.age_ms_max < 1:
            raise ConfigError("retry rule refused", why="attempts_max and age_ms_max must be at least 1")
        if not 1 <= self.backoff_ms_first <= self.backoff_ms_max:
            raise ConfigError("retry rule refused", why="backoff_ms_first must be from 1 to backoff_ms_max")

    def matches(self, topic: str, kind: str) -> bool:
        """Return whether it applies to such messages."""
        return kind in self.kinds and any(fnmatchcase(topic, pattern) for pattern in self.topics)

    def pause_ms(self, attempts: int, rng: random.Random) -> int:
        """Return the pause after ``attempts`` resends; 0: before the first."""
        pause_ms = backoff_ms(attempts, self.backoff_ms_first, self.backoff_ms_max)
        return max(int(pause_ms * rng.uniform(0.75, 1.0)), 1)

    def exhausted(self, attempts: int, kept_ms: int, now_ms: int) -> str:
        """Return why a message is not resent again, or an empty string."""
        if attempts >= self.attempts_max:
            return f"{attempts} of {self.attempts_max} resends failed"
        if now_ms - kept_ms >= self.age_ms_max:
            return f"it waited {now_ms - kept_ms} ms, age_ms_max is {self.age_ms_max}"
        return ""


def rule_for(rules: Sequence[RetryRule], topic: str, kind: str) -> RetryRule | None:
    """Return the first rule for such messages, or None if there is none or it does not keep them."""
    for rule in rules:
        if rule.matches(topic, kind):
            return rule if rule.keep else None
    return None
