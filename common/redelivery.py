"""Delay levels, and the copies of messages that are delivered again.

Lives here: ``DelayLevels``, the reading of RocketMQ's setting ``messageDelayLevel``; the first delay level of a retry,
our own properties of a copy, the bounded text of the last error, the id under which a copy remembers its first life.
"""

import re
from typing import Final

from pocketmq.common.errors import ConfigError
from pocketmq.common.record import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    REAL_TOPIC,
    RETRY_TOPIC,
    TIMER_PREFIX,
)

DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ MessageStoreConfig.messageDelayLevel: levels 1 to 18."""
LEVELS_MAX: Final = 64
DELAY_MS_MAX: Final = 366 * 86_400_000
UNKNOWN_LEVEL_MS: Final = 1000
"""The delay of a level that is not set any more (RocketMQ ScheduleMessageService.computeDeliverTimestamp)."""

_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"(\d{1,9})([smhd])", re.ASCII)


class DelayLevels:
    """The delay of each level in ms; levels count from 1. Raises ``ConfigError`` for a text that is none."""

    __slots__ = ("levels_ms",)

    def __init__(self, text: str = DEFAULT_DELAY_LEVELS) -> None:
        parts = text.split()
        matches = [_LEVEL.fullmatch(part) for part in parts]
        delays_ms = [int(match[1]) * _UNITS_MS[match[2]] for match in matches if match is not None]
        if not 1 <= len(parts) <= LEVELS_MAX or len(delays_ms) < len(parts):
            wrong = next(
                (part for part, match in zip(parts, matches, strict=True) if match is None), f"{len(parts)} of them"
            )
            raise ConfigError(
                "setting refused",
                why=f"store.message_delay_level: {wrong[:100]!r}",
                hint=f"write 1 to {LEVELS_MAX} delays with a unit s, m, h or d: 1s 5s 10s 1m",
            )
        if max(delays_ms) > DELAY_MS_MAX:
            raise ConfigError(
                "setting refused", why=f"store.message_delay_level: {max(delays_ms)} ms", hint="at most 366d"
            )
        self.levels_ms = tuple(delays_ms)

    def __len__(self) -> int:
        return len(self.levels_ms)

    def clamp(self, level: int) -> int:
        """Return the level that counts: one above the highest is the highest."""
        return min(level, len(self.levels_ms))

    def delay_ms(self, level: int) -> int:
        """Return the delay of a level."""
        return self.levels_ms[level - 1] if 1 <= level <= len(self.levels_ms) else UNKNOWN_LEVEL_MS


FIRST_RETRY_LEVEL: Final = 3
"""Delay level of the first retry (RocketMQ AbstractSendMessageProcessor.consumerSendMsgBack: 3 + reconsumeTimes)."""
DEAD_LETTERS: Final = -1
"""A delay level below 0 asks for the dead-letter topic at once (SendMessageProcessor)."""
MAX_RECONSUME_TIMES_DEFAULT: Final = 16
"""RocketMQ SubscriptionGroupConfig.retryMaxTimes, DefaultMQPushConsumer.maxReconsumeTimes."""

LAST_ERROR: Final = "POCKETMQ_LAST_ERROR"
"""Ours: why the last try failed, one line of at most ``LAST_ERROR_LENGTH_MAX`` characters."""
LAST_ERROR_LENGTH_MAX: Final = 256
RESENT_FROM: Final = "POCKETMQ_RESENT_FROM"
"""Ours: the dead letter that ``pocketmq dlq resend`` made this copy of: offset message id."""


def error_line(text: str) -> str:
    """Return ``text`` as one bounded line that a property can hold; empty stays empty."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * LAST_ERROR_LENGTH_MAX]).split())
    if len(line) > LAST_ERROR_LENGTH_MAX:
        line = line[: LAST_ERROR_LENGTH_MAX - 3] + "..."
    return line.encode("utf-8", "replace").decode()


def prepare_copy(properties: dict[str, str], topic: str, own_id: str) -> None:
    """Turn the properties of a message in ``topic`` into those of a copy for a retry or dead-letter topic.

    The copy keeps the first topic and the first offset message id (``own_id`` when this is its first copy). What the
    delivery of a delayed message left behind goes away: it would delay the copy again, or be refused.
    """
    properties.setdefault(RETRY_TOPIC, topic)
    properties.setdefault(ORIGIN_MESSAGE_ID, own_id)
    forget_delay(properties)


def forget_delay(properties: dict[str, str]) -> None:
    """Remove the properties that say that, or how long, the message waited."""
    for name in [name for name in properties if name.startswith(TIMER_PREFIX)]:
        del properties[name]
    for name in (DELAY, REAL_TOPIC, REAL_QID):
        properties.pop(name, None)
