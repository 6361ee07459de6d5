"""Where delayed messages wait, and which ones are refused."""

from typing import Any

import pytest

from pocketmq.broker.delay.delay_plan import DelayPlan, is_delayed
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import Cause
from pocketmq.common.redelivery import DelayLevels
from pocketmq.store.config import StoreConfig
from tests.broker.refused_texts import said

NOW_MS = 1_700_000_000_000
DAYS_3_MS = 259_200_000


def planned(properties: dict[str, str], *, congested: bool = False, **settings: Any) -> Any:
    plan = DelayPlan(StoreConfig(**settings), DelayLevels(), lambda due_ms: congested, ManualClock(NOW_MS))
    return plan.plan("T", 3, properties)


@pytest.mark.parametrize(
    ("properties", "waits", "due_ms"),
    [
        ({"DELAY": "1"}, ("SCHEDULE_TOPIC_XXXX", 0), None),
        ({"DELAY": "18"}, ("SCHEDULE_TOPIC_XXXX", 17), None),
        ({"DELAY": "1000"}, ("SCHEDULE_TOPIC_XXXX", 17), None),
        ({"DELAY": "2", "TIMER_DELAY_MS": "5"}, ("SCHEDULE_TOPIC_XXXX", 1), None),
        ({"DELAY": "-1"}, None, None),
        ({"DELAY": "0", "TIMER_DELAY_MS": "5"}, ("rmq_sys_wheel_timer", 0), NOW_MS + 6),
        ({"TIMER_DELAY_SEC": "2"}, ("rmq_sys_wheel_timer", 0), NOW_MS + 2001),
        ({"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "7"}, ("rmq_sys_wheel_timer", 0), NOW_MS + 1001),
        ({"TIMER_DELIVER_MS": str(NOW_MS + 1)}, ("rmq_sys_wheel_timer", 0), NOW_MS + 1),
        ({"TIMER_DELIVER_MS": str(NOW_MS + DAYS_3_MS)}, ("rmq_sys_wheel_timer", 0), NOW_MS + DAYS_3_MS),
        ({"TIMER_DELAY_SEC": "259200"}, ("rmq_sys_wheel_timer", 0), NOW_MS + DAYS_3_MS + 1),
        ({"TIMER_DELIVER_MS": str(NOW_MS)}, None, None),
        ({"TIMER_DELIVER_MS": "-5"}, None, None),
        ({"TIMER_DELAY_MS": "0"}, None, None),
    ],
)
def test_rocketmqs_rules(properties: dict[str, str], waits: Any, due_ms: int | None) -> None:
    """A level precedes a time, a level too high is the highest, a past time is due now; relative ones round up."""
    properties = dict(properties)
    assert is_delayed(properties)
    assert planned(properties) == waits
    assert properties.get("TIMER_OUT_MS") == (None if due_ms is None else str(due_ms))
    assert properties.get("REAL_TOPIC") == ("T" if waits else None)
    assert properties.get("REAL_QID") == ("3" if waits else None)


ILLEGAL = "timer message illegal: "
TOO_FAR = "timer message illegal, the delay time should not be bigger than the max delay "


@pytest.mark.parametrize(
    ("properties", "settings", "code", "text"),
    [
        ({"TIMER_DELAY_SEC": "259201"}, {}, 13, f"{TOO_FAR}259200000ms: TIMER_DELAY_SEC=259201 is 259201001 ms ahead"),
        (
            {"TIMER_DELAY_MS": "1" * 19},
            {},
            13,
            f"{ILLEGAL}TIMER_DELAY_MS='1111111111111111111' is no number of at most 18 digits",
        ),
        ({"TIMER_DELAY_MS": "5.5"}, {}, 13, f"{ILLEGAL}TIMER_DELAY_MS='5.5' is no number of at most 18 digits"),
        ({"TIMER_DELIVER_MS": "٣"}, {}, 13, f"{ILLEGAL}TIMER_DELIVER_MS='٣' is no number of at most 18 digits"),
        (
            {"TIMER_DELAY_MS": "5", "TIMER_OUT_MS": "5"},
            {},
            13,
            "property TIMER_OUT_MS is the broker's own, or of a feature that this broker does not have",
        ),
        ({"DELAY": "x"}, {}, 13, "delay level 'x' is no number"),
        (
            {"TIMER_DELAY_MS": "2000"},
            {"timer_max_delay_sec": 1},
            13,
            f"{TOO_FAR}1000ms: TIMER_DELAY_MS=2000 is 2001 ms ahead",
        ),
        (
            {"TIMER_DELAY_MS": "2000"},
            {"timer_wheel_enable": False},
            1,
            "accurate timer message is not enabled, timerWheelEnable is false",
        ),
    ],
)
def test_refusals_say_what_is_wrong(properties: dict[str, str], settings: Any, code: int, text: str) -> None:
    """WHEEL_TIMER_MSG_ILLEGAL is 13, a wheel that is off is 1, as RocketMQ 5.3 answers."""
    refusal = planned(dict(properties), **settings)
    assert said(refusal) == (code, text)
    assert refusal.cause is Cause.BAD_REQUEST


def test_too_many_in_one_second_are_refused_for_a_while() -> None:
    """WHEEL_TIMER_FLOW_CONTROL is 1, with its own cause and a retry time."""
    refusal = planned({"TIMER_DELAY_MS": "5"}, congested=True, timer_congest_num_each_slot=10)
    assert (refusal.cause, refusal.retry_after_ms) == (Cause.TIMER_CONGESTED, 1000)
    assert said(refusal) == (1, "timer message is under flow control, max num limit is 10 for one second")
