"""Rules of retries: after which failures, after which pause, and for how long one attempt may take.

Lives here: RocketMQ's sets of retryable response codes, ``RetryPolicy``, the error at the end. Pure: no I/O, time and
randomness are handed in.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pocketmq.client.errors import (
    ACCESS_BROKER_TIMEOUT,
    BROKER_NOT_EXIST_EXCEPTION,
    CONNECT_BROKER_EXCEPTION,
    Attempt,
    SendFailed,
    SendTimeout,
)
from pocketmq.common.errors import Cause, Stored
from pocketmq.remoting.codes import ResponseCode

RETRY_RESPONSE_CODES_4_9: frozenset[int] = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
"""DefaultMQProducer.java of 4.9 to 5.2: flow control (SYSTEM_BUSY) ends a send at its first broker."""

DEFAULT_RETRY_RESPONSE_CODES: frozenset[int] = RETRY_RESPONSE_CODES_4_9 | {
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.GO_AWAY,
}
"""DefaultMQProducer.java of 5.3: SYSTEM_BUSY since 5.3.0, GO_AWAY since 5.3.1."""

ATTEMPT_MS_MIN = 5.0
"""With less time left there is no further attempt: it could only time out."""
AUTOMATIC_ATTEMPT_SHARE = 2 / 3
"""The share of the time left that one attempt gets while another broker could be tried."""
AUTOMATIC_ATTEMPT_MS_MIN = 200.0
"""An attempt is not cut below this: a broker's own queue limit is 200 ms."""
BACKOFF_MS_FIRST = 50.0
BACKOFF_MS_MAX = 1_000.0
"""The spread of the pause before the same broker is tried again: doubles from the first to the last."""

NO_ANSWER = -1
"""``Attempt.answer_code`` where no broker answered."""


def backoff_ms(failures: int, first_ms: float, max_ms: float) -> float:
    """Return ``first_ms``, doubled for each of ``failures`` up to ``max_ms``: a pause that the caller spreads at
    random.

    Used by the attempts of a send, the durable retry and staged transactions.
    """
    return min(first_ms * 2.0 ** min(failures, 32), max_ms)


QUEUE_UNKNOWN = "request queueId["
"""How the refusal of a queue that the topic lacks begins (``common.refusals``; RocketMQ
AbstractSendMessageProcessor.msgCheck)."""


def is_queue_unknown(attempt: Attempt) -> bool:
    """Return whether the broker refused a queue that the topic lacks: the route was wrong, and nothing was stored."""
    return attempt.phase == "answer" and attempt.stored is not Stored.YES and attempt.answer.startswith(QUEUE_UNKNOWN)


class Decision(NamedTuple):
    """Whether to try again after a failure, and if not, why. ``late``: because the time is over."""

    again: bool
    why: str = ""
    late: bool = False


@dataclass(slots=True)
class RetryPolicy:
    """How often, after what and how soon a producer tries again.

    The caller's timeout is a hard bound over all attempts and pauses. ``attempt_timeout_ms`` bounds one attempt: None
    chooses (two thirds of the time left while another broker could be tried, else all of it), -1 is RocketMQ's default
    (no bound of its own).
    """

    retry_response_codes: set[int] = field(default_factory=lambda: set(DEFAULT_RETRY_RESPONSE_CODES))
    attempt_timeout_ms: int | None = None

    def decide(self, attempts: Sequence[Attempt], attempts_max: int, left_ms: float) -> Decision:
        """Decide after the last of ``attempts``.

        Retried: a route or connection that failed, an attempt without an answer, an answer whose code is in the set,
        unless it says that the message is stored: another attempt would only make a duplicate.
        """
        last = attempts[-1]
        if last.phase == "answer" and last.stored is Stored.YES:
            return Decision(False, "the broker has stored it, although its answer failed")
        if last.phase == "answer" and last.answer_code not in self.retry_response_codes:
            return Decision(False, f"response code {last.answer_code} is not retried")
        if len(attempts) >= attempts_max:
            late = left_ms < ATTEMPT_MS_MIN and last.answer_code == NO_ANSWER
            return Decision(False, f"{len(attempts)} of {attempts_max} attempts are used up", late)
        if left_ms < ATTEMPT_MS_MIN:
            return Decision(False, "no time is left", True)
        return Decision(True)

    def attempt_ms(self, left_ms: float, may_move: bool) -> float:
        """Return how long the next attempt may take; ``may_move``: another broker could be tried after it."""
        limit = self.attempt_timeout_ms
        if limit is None:
            if may_move:
                return min(left_ms, max(left_ms * AUTOMATIC_ATTEMPT_SHARE, AUTOMATIC_ATTEMPT_MS_MIN))
            return left_ms
        return left_ms if limit < 0 else min(left_ms, limit)

    @staticmethod
    def pause_ms(tries: int, retry_after_ms: int, left_ms: float, rng: random.Random) -> float | None:
        """Return the pause before retrying a broker that failed ``tries`` times in this send.

        Never shorter than the broker's ``retry_after_ms``, and spread beyond it, so that clients refused together do
        not retry together. None: it does not fit into the time left.
        """
        room_ms = left_ms - ATTEMPT_MS_MIN
        if retry_after_ms > room_ms:
            return None
        spread_ms = backoff_ms(max(tries - 1, 0), BACKOFF_MS_FIRST, BACKOFF_MS_MAX)
        spread_ms = max(spread_ms, min(float(retry_after_ms), BACKOFF_MS_MAX))
        return retry_after_ms + rng.uniform(0.0, min(spread_ms, room_ms - retry_after_ms))


FAULTS_OF_THE_MESSAGE: Final = frozenset({ResponseCode.MESSAGE_ILLEGAL})
"""Answers that do not change while the message does not."""


def send_failed(
    topic: str,
    attempts: Sequence[Attempt],
    why_no_more: str,
    elapsed_ms: float,
    *,
    late: bool = False,
    chosen: bool = False,
) -> SendFailed:
    """Return the error that ends a send, with every attempt in it and RocketMQ's code for the last one.

    ``late``: the time was over; ``chosen``: the queue was chosen by key or by the user.
    """
    last = attempts[-1]
    if last.answer_code != NO_ANSWER:
        code = last.answer_code
    elif last.phase == "route":
        code = BROKER_NOT_EXIST_EXCEPTION
    elif last.phase == "connect":
        code = CONNECT_BROKER_EXCEPTION
    else:
        code = ACCESS_BROKER_TIMEOUT
    said = {attempt.stored for attempt in attempts}
    stored = Stored.YES if Stored.YES in said else Stored.NO if said == {Stored.NO} else Stored.UNKNOWN
    if stored is Stored.YES:
        hint = "it is stored: consumers get it; do not send it again"
    elif stored is Stored.UNKNOWN:
        hint = "the message may have been stored: consumers can recognize it by its msg_id if it is sent again"
    elif last.answer_code == ResponseCode.SYSTEM_BUSY:
        hint = "it was not stored: the broker refuses because it is overloaded; send slower, or add a broker"
    elif last.answer_code in FAULTS_OF_THE_MESSAGE:
        hint = "it was not stored, and will not be if it is sent again as it is: change it"
    else:
        hint = "it was not stored; check the broker and send again"
    if last.answer_code == NO_ANSWER:
        cause = Cause.TIMEOUT if late else Cause.CONNECTION
    else:
        cause = Cause.NONE if last.cause is None else last.cause
    brokers = ", ".join(dict.fromkeys(attempt.broker or "?" for attempt in attempts))
    what = (
        f"Send [{len(attempts)}] times, still failed, cost [{elapsed_ms:.0f}]ms, Topic: {topic}, "
        f"BrokersSent: [{brokers}]; {why_no_more}"
    )
    kind = SendFailed
    if late:
        kind = SendTimeout
        what = f"{'sendSelectImpl' if chosen else 'sendDefaultImpl'} call timeout; {what}"
    return kind(
        what,
        attempts=attempts,
        answer_code=code,
        hint=hint,
        cause=cause,
        stored=stored,
        retry_after_ms=last.retry_after_ms,
    )
