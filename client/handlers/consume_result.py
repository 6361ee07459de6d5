"""The answers of handlers, and the fate of messages that were not done.

Lives here: ``ConsumeResult`` and ``Later`` (what handlers return), ``Outcome`` (their meaning for the messages of the
call), ``FailurePolicy`` (takes the failed messages).
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from pocketmq.common.errors import ConfigError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.redelivery import LEVELS_MAX

BROKER_DECIDES: Final = 0
"""Delay level by attempt (ConsumeConcurrentlyContext.delayLevelWhenNextConsume)."""
DEAD_LETTER: Final = -1
"""No further try: straight to the dead letters (ConsumeConcurrentlyContext.delayLevelWhenNextConsume)."""
SUSPEND_MS_MAX: Final = 30_000
"""Longest pause of an ordered queue (ConsumeMessageOrderlyService.submitConsumeRequestLater)."""


class ConsumeResult(enum.Enum):
    """The result for the messages of one handler call (ConsumeConcurrentlyStatus, ConsumeOrderlyStatus)."""

    SUCCESS = "CONSUME_SUCCESS"
    LATER = "RECONSUME_LATER"


@dataclass(slots=True, frozen=True, kw_only=True)
class Later:
    """Return it to ask for another try later.

    ``delay_level`` 0: the broker decides by the number of attempts; 1 and above: that delay level; -1: to the dead
    letters at once. ``messages``: the ones of a batch that failed; None: all. ``suspend_ms`` counts in ordered
    consumption only: how long the queue rests before the same message is tried again (10 to 30000), 0: as configured.
    ``reason``: why, in one line; it becomes the last error of a dead letter.
    """

    delay_level: int = BROKER_DECIDES
    messages: Sequence[ReceivedMessage] | None = None
    suspend_ms: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        if type(self.delay_level) is not int or not DEAD_LETTER <= self.delay_level <= LEVELS_MAX:
            raise ConfigError(
                "Later refused",
                why=f"delay_level={self.delay_level!r}",
                hint=f"-1 (dead letters), 0 (broker decides) or a level up to {LEVELS_MAX}",
            )
        if type(self.suspend_ms) is not int or not 0 <= self.suspend_ms <= SUSPEND_MS_MAX:
            raise ConfigError("Later refused", why=f"suspend_ms={self.suspend_ms!r}", hint=f"0 to {SUSPEND_MS_MAX}")
        if not isinstance(self.reason, str):
            raise ConfigError("Later refused", why=f"reason={self.reason!r}", hint="a text")
        if self.messages is not None:
            try:  # a generator could be read only once, and is read more than once
                named: tuple[Any, ...] = tuple(self.messages)
            except TypeError:
                named = (self.messages,)
            for each in named:
                if not hasattr(each, "queue_offset"):
                    raise ConfigError("Later refused", why=f"{type(each).__name__} in messages is no message")
            object.__setattr__(self, "messages", named)


class DeadLetter(Later):
    """Return it to give a message up: to the dead letters at once, as ``Later(delay_level=-1)``.

    ``reason``: why, in one line; it becomes the last error of the dead letter. ``messages``: the ones of a batch that
    are given up; None: all.
    """

    __slots__ = ()

    def __init__(self, reason: str = "", messages: Sequence[ReceivedMessage] | None = None) -> None:
        super().__init__(delay_level=DEAD_LETTER, messages=messages, reason=reason)


class Outcome(NamedTuple):
    """The result of one handler call. ``later``: the messages that are not done; empty: all are done.

    ``reason``: why, in one line (the exception, or what was returned). ``error``: the exception, if there was one.
    """

    later: Sequence[ReceivedMessage]
    delay_level: int = BROKER_DECIDES
    suspend_ms: int = 0
    reason: str = ""
    error: BaseException | None = None


LATER_REASON: Final = "the handler asked for a later try"
DONE: Final = Outcome(())


def is_answer(returned: Any) -> bool:
    """Return whether a handler may return this: None, True, False, a ``ConsumeResult`` or a ``Later``."""
    return returned is None or returned is True or returned is False or isinstance(returned, ConsumeResult | Later)


def outcome_of(returned: Any, messages: Sequence[ReceivedMessage]) -> Outcome:
    """Return the meaning of an answer for the messages of the call.

    None, True and SUCCESS: done. False, LATER and ``Later``: try later. Anything else means done, because the handler
    returned without raising; ``is_answer`` says whether that deserves a warning.
    """
    if returned is None or returned is True or returned is ConsumeResult.SUCCESS:
        return DONE
    if returned is False or returned is ConsumeResult.LATER:
        return Outcome(messages, reason=LATER_REASON)
    if not isinstance(returned, Later):
        return DONE
    later = messages
    if returned.messages is not None:
        wanted = {
            (message.topic, message.broker_name, message.queue_id, message.queue_offset)
            for message in returned.messages
        }
        later = [
            message
            for message in messages
            if (message.topic, message.broker_name, message.queue_id, message.queue_offset) in wanted
        ]
    reason = "the handler gave it up" if returned.delay_level == DEAD_LETTER else LATER_REASON
    return Outcome(later, returned.delay_level, returned.suspend_ms, returned.reason or reason)


class FailurePolicy(Protocol):
    """Takes the messages that a handler did not finish."""

    @property
    def retry_topic(self) -> str:
        """The topic from which failed messages come back, subscribed to with ``*``; empty: there is none."""
        ...

    async def failed(
        self, messages: Sequence[ReceivedMessage], reason: str, delay_level: int
    ) -> Sequence[ReceivedMessage]:
        """Take messages over; return those not taken: they are consumed here again after a pause.

        The messages that are not returned count as done: the offset moves past them. ``delay_level`` as in ``Later``:
        0 the broker decides, -1 the dead letters. ``reason``: one line, for people. Raises nothing but cancellation.
        """
        ...


class KeepHere:
    """The policy without a retry topic: every failed message stays here and is tried again after the pause."""

    retry_topic = ""

    async def failed(
        self, messages: Sequence[ReceivedMessage], reason: str, delay_level: int
    ) -> Sequence[ReceivedMessage]:
        """Take nothing."""
        return messages


class DropFailed:
    """The policy of broadcasting: failed messages are dropped with a log line (ConsumeMessageConcurrentlyService)."""

    retry_topic = ""

    async def failed(
        self, messages: Sequence[ReceivedMessage], reason: str, delay_level: int
    ) -> Sequence[ReceivedMessage]:
        """Count all as taken; the caller has logged them."""
        return ()
