"""The decision after a failed attempt, the pause before the next one, the error at the end."""

import pickle
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.connection.refusal_facts import REMARK_CHARS_MAX, remark_text
from pocketmq.client.errors import Attempt, SendFailed, SendTimeout
from pocketmq.client.sender.retry import (
    ATTEMPT_MS_MIN,
    BACKOFF_MS_MAX,
    DEFAULT_RETRY_RESPONSE_CODES,
    NO_ANSWER,
    RETRY_RESPONSE_CODES_4_9,
    RetryPolicy,
    send_failed,
)
from pocketmq.common.errors import Cause, Stored
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingTooMuchRequestError


def attempt(phase: Any = "answer", code: Any = NO_ANSWER, **facts: Any) -> Any:
    stored = Stored.UNKNOWN if phase == "send" else Stored.NO
    return Attempt("b", "127.0.0.1:1", phase, 5.0, code, "text", **{"stored": stored, **facts})


@pytest.mark.parametrize("phase", ["route", "connect", "local", "send"])
def test_failures_without_an_answer_are_tried_again(phase: Any) -> None:
    """They are retried while attempts and time are left."""
    policy = RetryPolicy()
    assert policy.decide([attempt(phase)], 3, 1000).again
    assert not policy.decide([attempt(phase)] * 3, 3, 1000).again
    late = policy.decide([attempt(phase)], 3, 4.9)
    assert not late.again
    assert late.late


def test_answers_are_tried_again_by_code_only() -> None:
    """SYSTEM_BUSY is in 5.3's set, MESSAGE_ILLEGAL is never retried; users may add codes."""
    policy = RetryPolicy()
    assert policy.decide([attempt(code=ResponseCode.SYSTEM_BUSY)], 3, 1000).again
    assert not policy.decide([attempt(code=ResponseCode.MESSAGE_ILLEGAL)], 3, 1000).again
    policy.retry_response_codes.add(ResponseCode.MESSAGE_ILLEGAL)
    assert policy.decide([attempt(code=ResponseCode.MESSAGE_ILLEGAL)], 3, 1000).again
    assert ResponseCode.MESSAGE_ILLEGAL not in DEFAULT_RETRY_RESPONSE_CODES


def test_the_sets_are_those_of_rocketmq() -> None:
    """The eight codes of 5.3.1 and later; the six of 4.9, in which flow control is not retried."""
    assert sorted(DEFAULT_RETRY_RESPONSE_CODES) == [1, 2, 14, 16, 17, 204, 205, 1500]
    assert sorted(RETRY_RESPONSE_CODES_4_9) == [1, 14, 16, 17, 204, 205]
    old = RetryPolicy(set(RETRY_RESPONSE_CODES_4_9))
    assert not old.decide([attempt(code=ResponseCode.SYSTEM_BUSY)], 3, 1000).again


@given(st.integers(1, 50), st.integers(0, 5_000), st.floats(0, 10_000), st.integers())
def test_a_pause_is_never_shorter_than_asked_nor_longer_than_the_time_left(
    tries: int, retry_after_ms: int, left_ms: float, seed: int
) -> None:
    """It lies between the broker's retry time and twice that (or the backoff's spread), and within the deadline."""
    pause = RetryPolicy.pause_ms(tries, retry_after_ms, left_ms, random.Random(seed))
    if pause is None:
        assert retry_after_ms > left_ms - ATTEMPT_MS_MIN
    else:
        assert retry_after_ms <= pause <= max(left_ms - ATTEMPT_MS_MIN, 0)
        assert pause <= retry_after_ms + BACKOFF_MS_MAX


def test_pauses_grow_and_differ() -> None:
    """Clients refused together do not return together."""
    rng = random.Random(1)
    first = [RetryPolicy.pause_ms(1, 0, 3000, rng) or 0.0 for _ in range(300)]
    third = [RetryPolicy.pause_ms(3, 0, 3000, rng) or 0.0 for _ in range(300)]
    asked = [RetryPolicy.pause_ms(1, 400, 3000, rng) or 0.0 for _ in range(300)]
    assert len(set(first)) > 290
    assert max(first) <= 50
    assert 150 < max(third) <= 200
    assert max(asked) - min(asked) > 300


@pytest.mark.parametrize(
    ("limit_ms", "left_ms", "may_move", "expected_ms"),
    [
        (None, 3000, True, 2000),
        (None, 3000, False, 3000),
        (None, 250, True, 200),
        (None, 100, True, 100),
        (-1, 3000, True, 3000),
        (500, 3000, True, 500),
        (500, 3000, False, 500),
        (500, 100, True, 100),
    ],
)
def test_one_attempt_may_not_eat_the_time_of_the_next(
    limit_ms: Any, left_ms: Any, may_move: Any, expected_ms: Any
) -> None:
    """By default it is limited only if another broker could be tried; -1 is RocketMQ's way; a number always counts."""
    assert RetryPolicy(attempt_timeout_ms=limit_ms).attempt_ms(left_ms, may_move) == pytest.approx(expected_ms)


def test_the_error_lists_every_attempt_and_says_what_is_known() -> None:
    """One line per attempt with address, phase, time and answer; a loss after sending means perhaps stored."""
    refused = attempt(code=2, cause=Cause.QUEUE_FULL, retry_after_ms=100, stages="queue_wait=203.51")
    error = send_failed("T", [attempt("connect"), attempt("send"), refused], "3 of 3 attempts are used up", 42)
    assert type(error) is SendFailed
    assert error.answer_code == 2
    assert error.stored is Stored.UNKNOWN
    assert (error.cause, error.retry_after_ms) == (Cause.QUEUE_FULL, 100)
    assert [each.phase for each in error.attempts] == ["connect", "send", "answer"]
    lines = str(error).splitlines()
    assert len(lines) == 5
    assert "Send [3] times, still failed, cost [42]ms, Topic: T, BrokersSent: [b]" in lines[0]
    assert "1. b [127.0.0.1:1] connect after 5 ms: text" in lines[1]
    assert "stored unknown" in lines[2]
    assert "cause queue_full, stored no, retry after 100 ms, stages queue_wait=203.51" in lines[3]
    assert send_failed("T", [attempt("connect")], "", 1).stored is Stored.NO
    assert [send_failed("T", [attempt(phase)], "", 1).answer_code for phase in ("connect", "send", "route")] == [
        10001,
        10002,
        10003,
    ]


def test_the_error_survives_a_process_border() -> None:
    """After a pickle round trip it has the same text and the same attempts."""
    error = send_failed("T", [attempt("send")], "no time is left", 3000, late=True)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is SendTimeout
    assert (str(copy), copy.attempts, copy.stored) == (str(error), error.attempts, error.stored)


def test_a_refusal_without_a_cause_says_so() -> None:
    """A real RocketMQ sends text and code only; no cause is invented."""
    assert "the broker gave no cause" in str(send_failed("T", [attempt(code=2)], "", 1))


def test_time_that_is_over_has_rocketmqs_name() -> None:
    """The error has the list of attempts and RocketMQ's type and text."""
    error = send_failed("T", [attempt("send")], "no time is left", 3000, late=True)
    assert isinstance(error, SendTimeout)
    assert isinstance(error, RemotingTooMuchRequestError)
    assert str(error).startswith("sendDefaultImpl call timeout; Send [1] times")
    assert (error.cause, error.answer_code) == (Cause.TIMEOUT, 10002)
    assert str(send_failed("T", [attempt("send")], "", 1, late=True, chosen=True)).startswith("sendSelectImpl")


def test_what_a_broker_says_it_has_stored_is_not_sent_again() -> None:
    """Another attempt could only make a duplicate; the error reports that the message is stored."""
    stored = attempt(code=ResponseCode.SYSTEM_BUSY, stored=Stored.YES)
    decision = RetryPolicy().decide([stored], 3, 1000)
    assert not decision.again
    error = send_failed("T", [attempt(code=ResponseCode.SYSTEM_BUSY, stored=Stored.NO), stored], decision.why, 5.0)
    assert error.stored is Stored.YES
    assert "do not send it again" in str(error)


def test_a_brokers_text_cannot_steer_a_terminal_nor_fill_memory() -> None:
    """Each attempt keeps one text, shortened, with a space for each unprintable character."""
    assert remark_text("[OVERLOAD]system busy, start flow control for a while") == (
        "[OVERLOAD]system busy, start flow control for a while"
    )
    assert remark_text("a\x1b[31m\r\nb") == "a [31m  b"
    assert len(remark_text("x" * 1_000_000)) == REMARK_CHARS_MAX + 1
