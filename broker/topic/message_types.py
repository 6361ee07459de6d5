"""The attributes of a topic that an administrator may set, above all the type of its messages.

RocketMQ 5's ``message.type`` says which messages a topic takes: NORMAL, FIFO, DELAY, TRANSACTION, or MIXED. Its proxy
checks it; the broker keeps it. A topic without it takes all of them here; in RocketMQ it counts as NORMAL.

Changes are written as in RocketMQ (``AttributeParser``): ``+message.type=FIFO``, ``-message.type``.

Lives here: ``message_type_of``, ``message_type``, ``changes_of``, ``check_changes``.
"""

from collections.abc import Mapping
from typing import Final

from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.record import (
    DELAY,
    SHARDING_KEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRAN_MSG,
)
from pocketmq.common.topics import TopicConfig

MESSAGE_TYPE: Final = "message.type"
MIXED: Final = "MIXED"
MESSAGE_TYPES: Final = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", MIXED)
"""RocketMQ TopicMessageType."""
_ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    MESSAGE_TYPE: MESSAGE_TYPES,
    "queue.type": ("SimpleCQ",),
    "cleanup.policy": ("DELETE",),
}
"""Attribute → its values that this broker can serve (RocketMQ TopicAttributes)."""
ATTRIBUTES_CHARACTERS_MAX: Final = 1_000


class AttributeIllegal(PocketMQError):
    """A change of attributes that cannot be made."""

    default_cause = Cause.BAD_REQUEST


def message_type_of(config: TopicConfig) -> str:
    """Return which messages a topic takes."""
    found = (config.attributes or {}).get(MESSAGE_TYPE, MIXED)
    return found if found in MESSAGE_TYPES and found != "UNSPECIFIED" else MIXED


def message_type(properties: Mapping[str, str]) -> str:
    """Return the type of a message by its properties (RocketMQ TopicMessageType.parseFromMessageProperty)."""
    if properties.get(TRAN_MSG) == "true":
        return "TRANSACTION"
    if any(name in properties for name in (DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS)):
        return "DELAY"
    return "FIFO" if SHARDING_KEY in properties else "NORMAL"


def changes_of(text: str) -> dict[str, str | None]:
    """Return name → new value, None to remove it, of ``+name=value,-name``; raises ``AttributeIllegal``."""
    if len(text) > ATTRIBUTES_CHARACTERS_MAX:
        raise _illegal(f"{len(text)} characters, at most {ATTRIBUTES_CHARACTERS_MAX}")
    pairs = [part.partition("=")[::2] for part in text.split(",") if part.strip()]
    if len({name for name, _ in pairs}) < len(pairs):
        raise _illegal("one of them is named twice")
    return check_changes(dict(pairs))


def check_changes(changes: Mapping[str, str]) -> dict[str, str | None]:
    """Return name → new value of changes with their signs, as a list of topics has them; raises
    ``AttributeIllegal``."""
    found: dict[str, str | None] = {}
    for signed, value in changes.items():
        sign, name = signed[:1], signed[1:].strip()
        if sign == "-" and name:
            found[name] = None
            continue
        allowed = _ALLOWED.get(name)
        if sign != "+" or allowed is None:
            raise _illegal(f"{signed[:80]!r} is none that this broker keeps")
        if value not in allowed:
            raise _illegal(f"{name}={value[:40]}, not one of {', '.join(allowed)}")
        found[name] = value
    return found


def _illegal(why: str) -> AttributeIllegal:
    return AttributeIllegal("attributes refused", why=why, hint=f"+{MESSAGE_TYPE}=FIFO, or -{MESSAGE_TYPE}")
