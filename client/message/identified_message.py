"""Messages whose unique id the application chose, so that sending one again after a crash gives the same id.

Lives here: ``IdentifiedMessage``, and the ids of sends.
"""

from collections.abc import Sequence
from typing import Any

from pocketmq.common.errors import MessageIllegal
from pocketmq.common.message import Message
from pocketmq.common.message_id import UNIQ_KEY_V4_CHARS, UniqueIdGenerator

_DIGITS = frozenset("0123456789ABCDEF")


class IdentifiedMessage(Message):
    """A message with its own ``msg_id``: 32 upper-case hex digits, as the generated ids are.

    A killed application does not know the outcome of its last sends. If it derives the id from the contents of the
    message (``uuid.uuid5(...).hex.upper()``) and sends them again, consumers can recognize the copies. Two different
    messages must never get the same id.
    """

    __slots__ = ("msg_id",)

    def __init__(self, topic: str, body: bytes, *, msg_id: str, **fields: Any) -> None:
        super().__init__(topic, body, **fields)
        if not isinstance(msg_id, str) or len(msg_id) != UNIQ_KEY_V4_CHARS or not _DIGITS.issuperset(msg_id):
            raise MessageIllegal(
                "message refused, field msg_id",
                why=f"{str(msg_id)[:80]!r} is not {UNIQ_KEY_V4_CHARS} upper-case hex digits",
                hint="for instance uuid.uuid5(namespace, text).hex.upper()",
            )
        self.msg_id = msg_id


def uniq_keys_of(messages: Sequence[Message], ids: UniqueIdGenerator) -> list[bytes]:
    """Return the unique id of each message: its own, or a new one."""
    keys = ids.next_bytes(len(messages))
    if any(issubclass(kind, IdentifiedMessage) for kind in set(map(type, messages))):
        for index, message in enumerate(messages):
            if isinstance(message, IdentifiedMessage):
                keys[index] = message.msg_id.encode("ascii")
    return keys
