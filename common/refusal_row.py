"""What the tables of known texts are made of: a text, the moment to try again, a row with cause and cure.

Lives here: ``Text``, ``RetryAfter``, ``Row``; who wrote a text (``Side``), which call got it (``Request``), who has to
change something (``Fault``), which clients send again (``Retry``, ``retried_by``).
"""

import enum
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from pocketmq.common.errors import Cause, Stored


class Fault(enum.Enum):
    """The party that has to change something."""

    CLIENT = "client"
    SERVER = "server"
    OPERATOR = "operator"
    PEER = "another peer"
    """Another client, the slave, the other master."""


class Side(enum.Enum):
    """The program that wrote a text."""

    BROKER = "the broker, in its answer"
    BROKER_LOG = "the broker, in its log"
    NAME_SERVER = "the name server, in its answer"
    PRODUCER = "the producer, in the application's process"
    CONSUMER = "the consumer, in the application's process"
    CLIENT = "the client (producer, consumer or tool), in its own process"
    SYSTEM = "the operating system or the runtime below the program"


class Request(enum.Enum):
    """The call that a text is about."""

    SEND = "send"
    PULL = "pull"
    OTHER = "other"


class Retry(enum.Enum):
    """The clients that by default retry a send after a code."""

    ROCKETMQ_4_9 = "RocketMQ 4.9"
    ROCKETMQ_5_3 = "RocketMQ 5.3"
    POCKETMQ = "PocketMQ"


RETRIED_SINCE_4_9: Final = frozenset((1, 14, 16, 17, 204, 205, 10001, 10002))
"""Codes in ``DefaultMQProducer.retryResponseCodes`` of 4.9, and those of a RemotingException."""
RETRIED_SINCE_5_3: Final = frozenset((2, 1500))
"""Codes that 5.3 and PocketMQ's producer have beside them."""


def retried_by(code: int) -> tuple[Retry, ...]:
    """Return the clients that retry a synchronous send after this response code."""
    if code in RETRIED_SINCE_4_9:
        return (Retry.ROCKETMQ_4_9, Retry.ROCKETMQ_5_3, Retry.POCKETMQ)
    return (Retry.ROCKETMQ_5_3, Retry.POCKETMQ) if code in RETRIED_SINCE_5_3 else ()


@dataclass(frozen=True)
class Text:
    """A text that a client or a log shows, and its response code. ``code`` 0: no answer comes, or it has no code.

    ``%s`` and ``%d`` stand for what varies. ``source``: the class of RocketMQ that has the text, as far as it differs
    from its row's.
    """

    template: str
    code: int = 0
    code_4_9: int | None = None
    """The code in RocketMQ before 5.3, where that is another one."""
    by: Side = Side.BROKER
    request: Request = Request.SEND
    source: str = ""
    scenario: str = ""
    """Shows this text, where the row's scenario shows another one."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Finds the text in a line, with a group for each number and name in it."""
        parts = re.split(r"(%[sd])", self.template.removesuffix("%s"))
        found = [{"%s": "(.*?)", "%d": r"(-?\d+)"}.get(part) or re.escape(part) for part in parts]
        return re.compile("".join(found) + ("(.*)" if self.template.endswith("%s") else ""))


@dataclass(frozen=True)
class RetryAfter:
    """When the same broker may serve the same request: within these bounds, by this rule. 0: no later moment helps."""

    ms_min: int
    ms_max: int
    rule: str = ""

    @property
    def text(self) -> str:
        """Bounds and rule in words."""
        if not self.ms_max:
            return "–"
        bounds = f"{self.ms_min:,}" if self.ms_min == self.ms_max else f"{self.ms_min:,} to {self.ms_max:,}"
        return f"{bounds} ms{f': {self.rule}' if self.rule else ''}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """The facts about one cause, or, with a ``key``, about some of its texts.

    ``what`` completes "requests are refused: …"; ``why`` says in a sentence how it comes to that; ``cure`` what to do,
    ``price`` what that costs, ``bad_cures`` common advice that only hides it. ``other_codes``: codes that come with
    texts of their own. ``stored``: whether the message of a send was stored. ``retried``: who sends again, where the
    response code does not say it. ``area``: the part of a broker that ``pocketmq doctor`` shows it with. ``scenario``:
    shows it with ``pocketmq scenario``, or empty. ``docs``: page and heading, where it is not the cause's own.
    ``source``: the class of RocketMQ that has the texts. ``wraps``: the text only carries another one, which is the
    reason. ``never_from_broker``: why no broker refuses a request with it, else empty.
    """

    cause: Cause
    key: str = ""
    what: str
    why: str
    texts: tuple[Text, ...] = ()
    other_codes: tuple[int, ...] = ()
    stored: Stored = Stored.NO
    retry_after: RetryAfter = RetryAfter(0, 0)
    retried: str = ""
    fault: Fault
    cure: str
    price: str = ""
    bad_cures: tuple[str, ...] = ()
    scenario: str = ""
    area: str = "admission"
    docs: str = ""
    source: str = ""
    wraps: bool = False
    never_from_broker: str = ""

    @property
    def name(self) -> str:
        """The key, or the name of the cause."""
        return self.key or self.cause.value

    @property
    def page(self) -> str:
        """The page of the documents that says more, with its heading."""
        return self.docs or f"docs/sending.md#{self.cause.value}"

    @property
    def codes(self) -> tuple[int, ...]:
        """Response codes, those of RocketMQ before 5.3 included, each once."""
        of_texts = (code for text in self.texts for code in (text.code, text.code_4_9) if code)
        return tuple(dict.fromkeys((*of_texts, *self.other_codes)))

    @property
    def advice(self) -> str:
        """The cure, and common advice that is none."""
        return f"{self.cure} No cure: {'; '.join(self.bad_cures)}." if self.bad_cures else self.cure
