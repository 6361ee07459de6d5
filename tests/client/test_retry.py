"""The decision after a failed attempt."""

from typing import Any

import pytest

from pocketmq.client.errors import Attempt
from pocketmq.client.retry import DEFAULT_RETRY_RESPONSE_CODES, NO_ANSWER, RetryPolicy, send_failed
from pocketmq.common.errors import Stored
from pocketmq.remoting.codes import ResponseCode


def attempt(phase: Any = "answer", code: Any = NO_ANSWER) -> Any:
    return Attempt("b", "127.0.0.1:1", phase, 5.0, code, "text")


@pytest.mark.parametrize("phase", ["route", "connect", "local", "send"])
def test_failures_without_an_answer_are_tried_again(phase: Any) -> None:
    """As long as attempts and time are left."""
    policy = RetryPolicy()
    assert policy.decide([attempt(phase)], 3, 1000).again
    assert not policy.decide([attempt(phase)] * 3, 3, 1000).again
    assert not policy.decide([attempt(phase)], 3, 4.9).again


def test_answers_are_tried_again_by_code_only() -> None:
    """SYSTEM_BUSY is in 5.3's set, MESSAGE_ILLEGAL never helps; users may add codes."""
    policy = RetryPolicy()
    assert policy.decide([attempt(code=ResponseCode.SYSTEM_BUSY)], 3, 1000).again
    assert not policy.decide([attempt(code=ResponseCode.MESSAGE_ILLEGAL)], 3, 1000).again
    policy.retry_response_codes.add(ResponseCode.MESSAGE_ILLEGAL)
    assert policy.decide([attempt(code=ResponseCode.MESSAGE_ILLEGAL)], 3, 1000).again
    assert ResponseCode.MESSAGE_ILLEGAL not in DEFAULT_RETRY_RESPONSE_CODES


def test_the_default_set_is_that_of_rocketmq_5_3() -> None:
    """The eight codes of DefaultMQProducer 5.3.1 and later."""
    assert sorted(DEFAULT_RETRY_RESPONSE_CODES) == [1, 2, 14, 16, 17, 204, 205, 1500]


def test_a_requested_delay_is_honoured_within_the_time_left() -> None:
    """The broker's retry-after is the pause; if it does not fit, there is no further attempt."""
    policy = RetryPolicy()
    assert policy.decide([attempt(code=2)], 3, 1000, 100).delay_ms == 100
    assert not policy.decide([attempt(code=2)], 3, 100, 100).again


def test_the_error_lists_every_attempt_and_says_what_is_known() -> None:
    """Address, phase, time and answer of each; lost after sending means perhaps stored."""
    error = send_failed("T", [attempt("connect"), attempt("send"), attempt(code=2)], "3 of 3 attempts are used up", 42)
    assert error.answer_code == 2
    assert error.stored is Stored.UNKNOWN
    assert [each.phase for each in error.attempts] == ["connect", "send", "answer"]
    assert "Send [3] times, still failed, cost [42]ms, Topic: T, BrokersSent: [b]" in str(error)
    assert "127.0.0.1:1" in str(error)
    assert send_failed("T", [attempt("connect")], "", 1).stored is Stored.NO
    assert [send_failed("T", [attempt(phase)], "", 1).answer_code for phase in ("connect", "send", "route")] == [
        10001,
        10002,
        10003,
    ]
