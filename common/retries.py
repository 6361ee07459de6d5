"""Redelivered messages: the properties of their copies, beside RocketMQ's own.

Lives here: the first delay level of a retry, our own property names, the bounded text of the last error, the id under
which a copy remembers its first life.
"""

from typing import Final

from pocketmq.common.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    REAL_TOPIC,
    RETRY_TOPIC,
    TIMER_PREFIX,
)

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
