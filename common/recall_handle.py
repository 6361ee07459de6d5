"""Recall handles: what a sender gives back to take a delayed message back before its time.

RocketMQ 5.3.3's ``RecallMessageHandle``: URL-safe Base64 of ``v1 topic broker timestamp messageId``, with spaces
between them; the timestamp is the time of delivery in ms.

Lives here: ``RecallHandle``.
"""

import base64
import binascii
from typing import Final, NamedTuple

from pocketmq.common.errors import Cause, PocketMQError

VERSION: Final = "v1"
CHARACTERS_MAX: Final = 1_024


class RecallHandleIllegal(PocketMQError):
    """A text is no recall handle, or one that cannot be used here or any more."""

    code = 604  # ILLEGAL_OPERATION
    default_cause = Cause.BAD_REQUEST


class RecallHandle(NamedTuple):
    """One delayed message. ``str`` gives its text."""

    topic: str
    broker: str
    due_ms: int
    message_id: str
    """Its unique id."""

    def __str__(self) -> str:
        text = f"{VERSION} {self.topic} {self.broker} {self.due_ms} {self.message_id}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def parse(cls, text: str) -> "RecallHandle":
        """Return the handle with this text; raises ``RecallHandleIllegal``.

        >>> RecallHandle.parse(str(RecallHandle("T", "broker-a", 1700000000000, "01")))
        RecallHandle(topic='T', broker='broker-a', due_ms=1700000000000, message_id='01')
        """
        if not text or len(text) > CHARACTERS_MAX:
            raise RecallHandleIllegal("recall handle is invalid", why=f"it has {len(text)} characters")
        try:
            fields = base64.b64decode(text.encode(), b"-_", validate=True).decode().split(" ")
        except (binascii.Error, ValueError) as error:
            raise RecallHandleIllegal("recall handle is invalid", why=str(error)) from error
        if len(fields) != 5 or fields[0] != VERSION:
            raise RecallHandleIllegal(
                "recall handle is invalid", why=f"{len(fields)} fields, version {fields[0][:8]!r}"
            )
        _, topic, broker, due, message_id = fields
        if not (due.isascii() and due.isdecimal() and len(due) <= 18 and topic and message_id):
            raise RecallHandleIllegal("recall handle is invalid", why=f"its time is {due[:24]!r}")
        return cls(topic, broker, int(due), message_id)
