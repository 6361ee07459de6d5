"""When a failed send is tried again, and what is remembered of each try. Pure: no I/O, time is handed in.

Lives here: RocketMQ's set of retryable response codes, the decision after a failure, the error at the end.
Not here: choosing another broker (``selectors.RoundRobin`` avoids those that failed), the sending itself (``sender``).
Fault items with latency tables, jittered backoff, retry-after and a retry budget belong to the flow-control issue: they
extend
``RetryPolicy.decide``, which already sees everything they need.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pocketmq.client.errors import (
    ACCESS_BROKER_TIMEOUT,
    BROKER_NOT_EXIST_EXCEPTION,
    CONNECT_BROKER_EXCEPTION,
    Attempt,
    SendFailed,
)
from pocketmq.common.errors import Cause, Stored
from pocketmq.remoting.codes import ResponseCode

DEFAULT_RETRY_RESPONSE_CODES: frozenset[int] = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""DefaultMQProducer.java of 5.3: SYSTEM_BUSY since 5.3.0, GO_AWAY since 5.3.1."""

ATTEMPT_MS_MIN = 5.0
"""With less time left than this no further attempt is made: it could only time out."""

NO_ANSWER = -1
"""``Attempt.answer_code`` where no broker answered."""


class Decision(NamedTuple):
    """What to do after a failure: ``again`` after ``delay_ms``, or not, and why not."""

    again: bool
    delay_ms: float
    why: str


@dataclass(slots=True)
class RetryPolicy:
    """How often and after what a producer tries again.

    Attempts in all: ``1 + retry_times``, within the caller's timeout, which is a hard bound over all of them.
    """

    retry_times: int = 2
    retry_response_codes: set[int] = field(default_factory=lambda: set(DEFAULT_RETRY_RESPONSE_CODES))

    def decide(
        self, attempts: Sequence[Attempt], attempts_max: int, left_ms: float, retry_after_ms: int = 0
    ) -> Decision:
        """Decide after the last of ``attempts``; ``attempts_max`` is 1 where the queue was chosen by key or by the
        user.

        Retried: a route or connection that failed, an attempt without an answer, an answer whose code is in the set.
        The time between attempts is what the broker asked for (``retry_after_ms``), bounded by the time left.
        """
        last = attempts[-1]
        if last.phase == "answer" and last.answer_code not in self.retry_response_codes:
            return Decision(False, 0.0, f"response code {last.answer_code} is not retried")
        if len(attempts) >= attempts_max:
            return Decision(False, 0.0, f"{len(attempts)} of {attempts_max} attempts are used up")
        if left_ms - retry_after_ms < ATTEMPT_MS_MIN:
            return Decision(False, 0.0, "no time is left")
        return Decision(True, float(retry_after_ms), "")


def send_failed(topic: str, attempts: Sequence[Attempt], why_no_more: str, elapsed_ms: float) -> SendFailed:
    """Return the error that ends a send, with every attempt in it and RocketMQ's code for the last one."""
    last = attempts[-1]
    if last.answer_code != NO_ANSWER:
        code = last.answer_code
    elif last.phase == "route":
        code = BROKER_NOT_EXIST_EXCEPTION
    elif last.phase == "connect":
        code = CONNECT_BROKER_EXCEPTION
    else:
        code = ACCESS_BROKER_TIMEOUT
    lost = any(attempt.phase == "send" for attempt in attempts)
    if lost:
        hint = "the message may have been stored: consumers can tell by its msg_id if it is sent again"
    elif last.answer_code == ResponseCode.SYSTEM_BUSY:
        hint = "the broker refuses because it is overloaded; send slower, or add a broker"
    else:
        hint = "it was not stored; check the broker and send again"
    brokers = ", ".join(dict.fromkeys(attempt.broker or "?" for attempt in attempts))
    return SendFailed(
        f"Send [{len(attempts)}] times, still failed, cost [{elapsed_ms:.0f}]ms, Topic: {topic}, "
        f"BrokersSent: [{brokers}]; {why_no_more}",
        attempts=attempts,
        answer_code=code,
        hint=hint,
        cause=Cause.CONNECTION if last.answer_code == NO_ANSWER else Cause.NONE,
        stored=Stored.UNKNOWN if lost else Stored.NO,
    )
