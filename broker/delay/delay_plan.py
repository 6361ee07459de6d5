"""Where a delayed message waits.

Lives here: ``DelayPlan``: from the properties of a send to the topic and queue that its record is stored in, with
RocketMQ's rules (HookUtils.handleScheduleMessage) and refusals.
"""

from collections.abc import Callable
from typing import Final

from pocketmq.broker.request.request_task import Refusal
from pocketmq.common.clock import Clock
from pocketmq.common.delay_levels import DelayLevels
from pocketmq.common.errors import Cause
from pocketmq.common.properties import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMER_PREFIX,
)
from pocketmq.common.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.remoting.codes import ResponseCode
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
            return _illegal(f"delay level {level_text[:40]!r} is no number")
        if level > 0:
            for timer in TIMER_NAMES:
                properties.pop(timer, None)
        for other in properties:
            if other.startswith(TIMER_PREFIX) and other not in TIMER_NAMES:
                return _illegal(f"property {other} is the broker's own, or of a feature that this broker does not have")
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
            text = "accurate timer message is not enabled, timerWheelEnable is false"
            return Refusal(int(ResponseCode.SYSTEM_ERROR), text, Cause.BAD_REQUEST)
        value = _number(properties[name])
        if value is None:
            return _illegal(
                f"timer message illegal: {name}={properties[name][:40]!r} is no number of at most 18 digits"
            )
        now_ms = self._clock.now_ms()
        if name == TIMER_DELIVER_MS:
            due_ms = value
        else:  # the clock's ms has begun already: rounded up, so that the delay is never shorter
            due_ms = now_ms + (value * 1000 if name == TIMER_DELAY_SEC else value) + (1 if value > 0 else 0)
        if due_ms <= now_ms:
            return NOW
        max_ms = self._config.timer_max_delay_sec * 1000
        if due_ms - now_ms > max_ms + 1:
            return _illegal(
                f"timer message illegal, the delay time should not be bigger than the max delay {max_ms}ms: "
                f"{name}={value} is {due_ms - now_ms} ms ahead"
            )
        if self._is_congested(due_ms):
            limit = self._config.timer_congest_num_each_slot
            return Refusal(
                int(ResponseCode.SYSTEM_ERROR),
                f"timer message is under flow control, max num limit is {limit} for one second",
                Cause.TIMER_CONGESTED,
                retry_after_ms=CONGESTED_RETRY_MS,
            )
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


def _illegal(text: str) -> Refusal:
    return Refusal(int(ResponseCode.MESSAGE_ILLEGAL), text, Cause.BAD_REQUEST)
