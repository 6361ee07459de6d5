"""Errors of the SDK: whose fault, whether a retry can help, and what to do.

Lives here: the typed errors that producers, consumers and the admin client raise, and RocketMQ's client error codes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pocketmq.common.errors import Cause, PocketMQError, Stored
from pocketmq.common.printable import printable
from pocketmq.remoting.errors import RemotingTooMuchRequestError

CONNECT_BROKER_EXCEPTION = 10001  # RocketMQ ClientErrorCode.java
ACCESS_BROKER_TIMEOUT = 10002
BROKER_NOT_EXIST_EXCEPTION = 10003
NO_NAME_SERVER_EXCEPTION = 10004
NOT_FOUND_TOPIC_EXCEPTION = 10005


ROLE_CAUSES = (Cause.NOT_MASTER, Cause.FENCED_BY_EPOCH)
"""Refusals of a broker that is not, or no longer, the master of its name."""


class ClientError(PocketMQError):
    """A call of the SDK failed."""


class NotStarted(ClientError):
    """The producer or consumer is not running: not started yet, or stopped."""

    default_cause = Cause.SHUTTING_DOWN


class WrongLoop(ClientError):
    """An object of one event loop was used from another, or from a plain thread."""

    default_cause = Cause.CONFIG


class ForkedClient(ClientError):
    """The process was forked after the client had started; its connections belong to the parent."""

    default_cause = Cause.CONFIG


class NoNameServer(ClientError):
    """No name server was given, or none of those given answered."""

    code = NO_NAME_SERVER_EXCEPTION
    retriable = True
    final = False
    default_cause = Cause.CONNECTION


class NoRoute(ClientError):
    """The name server knows no broker that takes or serves the topic.

    ``final``: a registered broker refuses it, so that a send need not wait; else a broker may be starting.
    """

    code = NOT_FOUND_TOPIC_EXCEPTION
    retriable = True
    final = False
    default_cause = Cause.NO_ROUTE


class BrokerNotExist(ClientError):
    """A queue names a broker that the route does not know."""

    code = BROKER_NOT_EXIST_EXCEPTION
    retriable = True
    default_cause = Cause.NO_ROUTE


class SelectorFailed(ClientError):
    """A queue selector raised, or returned something that is no queue of the topic."""

    default_cause = Cause.BAD_REQUEST


class SubscriptionIllegal(ClientError):
    """A tag expression, a handler or a group's settings cannot be used."""

    default_cause = Cause.BAD_REQUEST


class OffsetIllegal(ClientError):
    """A position is outside the queue, negative, or not a position at all."""

    default_cause = Cause.BAD_REQUEST


class BrokerAnswerError(ClientError):
    """A broker or name server answered with an error code.

    ``answer_code`` is RocketMQ's response code, ``remark`` its text, ``address`` the server.
    """

    default_cause = Cause.NONE

    def __init__(
        self,
        what: str,
        *,
        answer_code: int,
        remark: str,
        address: str,
        hint: str = "",
        cause: Cause | None = None,
        stored: Stored = Stored.NO,
        retry_after_ms: int = 0,
    ) -> None:
        super().__init__(
            what,
            why=f"{address} answered {answer_code} {remark}".rstrip(),
            hint=hint,
            cause=cause,
            stored=stored,
            retry_after_ms=retry_after_ms,
        )
        self.answer_code = answer_code
        self.remark = remark
        self.address = address


class BrokerUnavailable(BrokerAnswerError):
    """A server answered that it cannot serve now: busy, starting, shutting down. The same request may succeed soon."""

    retriable = True


UNAVAILABLE_CODES: frozenset[int] = frozenset({2, 14, 215, 1500})
"""SYSTEM_BUSY, SERVICE_NOT_AVAILABLE, FLOW_CONTROL, GO_AWAY."""


def answer_error(
    what: str,
    *,
    answer_code: int,
    remark: str,
    address: str,
    hint: str = "",
    cause: Cause | None = None,
    retry_after_ms: int = 0,
) -> BrokerAnswerError:
    """Return the error for an answer with this code."""
    kind = BrokerUnavailable if answer_code in UNAVAILABLE_CODES else BrokerAnswerError
    return kind(
        what,
        answer_code=answer_code,
        remark=remark,
        address=address,
        hint=hint,
        cause=cause,
        retry_after_ms=retry_after_ms,
    )


@dataclass(slots=True, frozen=True)
class Attempt:
    """One try to deliver a message.

    ``phase`` says how far it came: ``route``, ``connect``, ``local`` (the connection's own limits), ``send`` (lost on
    the way, perhaps stored), ``answer`` (refused), ``stored`` (stored, but with a status other than SEND_OK).
    ``cause``, ``retry_after_ms`` and ``stages`` are the broker's fields beside its text; ``cause`` is None where it
    sent none, like a real RocketMQ. ``stored`` describes this attempt alone.
    """

    broker: str
    address: str
    phase: str
    elapsed_ms: float
    answer_code: int
    answer: str
    cause: Cause | None = None
    stored: Stored = Stored.NO
    retry_after_ms: int = 0
    stages: str = ""

    @property
    def offered(self) -> bool:
        """Whether the request left this client."""
        return self.phase not in NOT_OFFERED

    def __str__(self) -> str:
        code = f" code {self.answer_code}" if self.answer_code >= 0 else ""
        where = f"{self.broker or '?'} [{self.address or '?'}]"
        text = f"{where} {self.phase}{code} after {self.elapsed_ms:.0f} ms: {self.answer}"
        facts: list[str] = []
        if self.phase == "answer":
            facts.append("the broker gave no cause" if self.cause is None else f"cause {self.cause.value}")
        if self.offered:
            facts.append(f"stored {self.stored.value}")
        if self.retry_after_ms:
            facts.append(f"retry after {self.retry_after_ms} ms")
        if self.stages:
            facts.append(f"stages {self.stages}")
        return f"{text} [{', '.join(facts)}]" if facts else text


NOT_OFFERED: frozenset[str] = frozenset({"route", "connect", "local"})
"""Phases of attempts that no broker ever saw."""


class SendFailed(ClientError):
    """A message was not delivered, after every attempt that count, time and retry budget allowed.

    ``attempts`` lists them in order; ``stored`` is UNKNOWN when one of them may have been stored, YES when a broker
    reported it as stored, although its answer failed. ``answer_code`` is the last answer's response code, or RocketMQ's
    client code (10001 connect, 10002 timeout, 10003 broker). ``cause`` and ``retry_after_ms`` are those of the last
    attempt. ``str()`` has one line for each attempt.
    """

    retriable = True
    default_cause: ClassVar[Cause] = Cause.NONE

    def __init__(
        self,
        what: str,
        *,
        attempts: Sequence[Attempt] = (),
        answer_code: int = -1,
        hint: str = "",
        cause: Cause | None = None,
        stored: Stored = Stored.NO,
        retry_after_ms: int = 0,
    ) -> None:
        why = "; ".join(f"{number}. {attempt}" for number, attempt in enumerate(attempts, 1))
        super().__init__(what, why=why, hint=hint, cause=cause, stored=stored, retry_after_ms=retry_after_ms)
        self.attempts = tuple(attempts)
        self.answer_code = answer_code

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  {number}. {attempt}" for number, attempt in enumerate(self.attempts, 1)]
        if self.hint:
            lines.append(f"  ({self.hint})")
        return printable("\n".join(lines), keep="\n\t")


class SendTimeout(SendFailed, RemotingTooMuchRequestError):
    """The time of a send was over before it was delivered: RocketMQ's ``sendDefaultImpl call timeout``.

    Also a ``RemotingTooMuchRequestError``, since RocketMQ's clients catch it under that name.
    """

    retriable = True
    default_cause: ClassVar[Cause] = Cause.TIMEOUT
