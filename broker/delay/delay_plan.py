"""Where a delayed message waits.

Lives here: ``DelayPlan``: from the properties of a send to the topic and queue that its record is stored in, with
RocketMQ's rules (HookUtils.handleScheduleMessage) and refusals.
"""

from collections.abc import Callable
from typing import Final

from pocketmq.broker.request.request_task import Refusal, refused
from pocketmq.common import refusals
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause
from pocketmq.common.record import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMER_PREFIX,
)
from pocketmq.common.redelivery import DelayLevels
from pocketmq.common.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.store.config import StoreConfig

TIMER_NAMES: Final = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
"""What a client may say; the first one found counts (RocketMQ HookUtils.transformTimerMessage)."""
CONGESTED_RETRY_MS: Final = 1000

_DIGITS_MAX: Final = 18
NOW: Final[tuple[str, int] | None] = None


def is_delayed(properties: dict[str, str]) -> bool:
    """Tell whether a message asks for a delay at all."""
    return properties.get(DELAY, "0") != "0" or any(name.startswith(TIMER_PREFIX) for name in properties)


class DelayPlan:
    """Decides for one send thread at a time. ``is_congested(due_ms)``: whether too many are due in that second."""

    __slots__ = ("_clock", "_config", "_is_congested", "_levels")

    def __init__(
        self, config: StoreConfig, levels: DelayLevels, is_congested: Callable[[int], bool], clock: Clock
    ) -> None:
        self._config = config
        self._levels = levels
        self._is_congested = is_congested
        self._clock = clock

    def plan(self, topic: str, queue_id: int, properties: dict[str, str]) -> tuple[str, int] | Refusal | None:
        """Return the (topic, queue) in which the message waits, None when it goes to its own at once, or a refusal.

        Changes ``properties`` to those of the stored record. A level counts before a time; a level above the highest is
        the highest; one of 0 or below, and a time that has passed, mean now.
        """
        level_text = properties.get(DELAY, "0")
        level = _number(level_text)
        if level is None:
            return refused(Cause.BAD_REQUEST, refusals.DELAY_LEVEL_ILLEGAL, repr(level_text[:40]))
        if level > 0:
            for timer in TIMER_NAMES:
                properties.pop(timer, None)
        for other in properties:
            if other.startswith(TIMER_PREFIX) and other not in TIMER_NAMES:
                return refused(Cause.BAD_REQUEST, refusals.DELAY_PROPERTY_ILLEGAL, other)
        if level > 0:
            level = self._levels.clamp(level)
            properties[DELAY] = str(level)
            return self._waits(topic, queue_id, properties, SCHEDULE_TOPIC, level - 1)
        name = next((each for each in TIMER_NAMES if each in properties), None)
        if name is None:
            return NOW
        return self._timer(topic, queue_id, properties, name)

    def _timer(
        self, topic: str, queue_id: int, properties: dict[str, str], name: str
    ) -> tuple[str, int] | Refusal | None:
        if not self._config.timer_wheel_enable:
            return refused(Cause.BAD_REQUEST, refusals.TIMERS_OFF)
        value = _number(properties[name])
        if value is None:
            return refused(Cause.BAD_REQUEST, refusals.TIMER_ILLEGAL, name, repr(properties[name][:40]))
        now_ms = self._clock.now_ms()
        if name == TIMER_DELIVER_MS:
            due_ms = value
        else:  # the clock's ms has begun already: rounded up, so that the delay is never shorter
            due_ms = now_ms + (value * 1000 if name == TIMER_DELAY_SEC else value) + (1 if value > 0 else 0)
        if due_ms <= now_ms:
            return NOW
        max_ms = self._config.timer_max_delay_sec * 1000
        if due_ms - now_ms > max_ms + 1:
            return refused(Cause.BAD_REQUEST, refusals.TIMER_TOO_FAR, max_ms, name, value, due_ms - now_ms)
        if self._is_congested(due_ms):
            limit = self._config.timer_congest_num_each_slot
            return refused(Cause.TIMER_CONGESTED, refusals.TIMER_CONGESTED, limit, retry_after_ms=CONGESTED_RETRY_MS)
        properties[TIMER_OUT_MS] = str(due_ms)
        return self._waits(topic, queue_id, properties, TIMER_TOPIC, 0)

    @staticmethod
    def _waits(topic: str, queue_id: int, properties: dict[str, str], waits_in: str, waits_at: int) -> tuple[str, int]:
        properties[REAL_TOPIC] = topic
        properties[REAL_QID] = str(queue_id)
        return waits_in, waits_at


def _number(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS_MAX else None
