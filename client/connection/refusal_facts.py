"""The fields of a refusal beside its text: cause, stored or not, when to retry, where the time went.

Lives here: reading the fields ``cause``, ``stored``, ``retry_after_ms`` and ``stages`` of an answer, its text, and the
codes that imply "not stored". A real RocketMQ sends none of these fields: then nothing is known or assumed.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pocketmq.common.errors import Cause, Stored
from pocketmq.remoting.codes import ResponseCode

STAGES_CHARS_MAX = 500
"""A longer list of stages is no list of stages."""
REMARK_CHARS_MAX = 2_000
"""Characters kept of a broker's text: each attempt of each failed send holds one."""
RETRY_AFTER_MS_MAX = 3_600_000
"""A longer wait counts as this one: either ends every send."""
CODES_NEVER_STORED = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
    }
)
"""Codes that imply "not stored" without the broker's own field: RocketMQ gives them before it appends."""
_CAUSES = {cause.value: cause for cause in Cause}
_STORED = {stored.value: stored for stored in Stored}


class RefusalFacts(NamedTuple):
    """``cause`` and ``stored`` are None if the peer did not send them, ``retry_after_ms`` 0, ``stages`` empty."""

    cause: Cause | None = None
    stored: Stored | None = None
    retry_after_ms: int = 0
    stages: str = ""


NO_FACTS = RefusalFacts()


def refusal_facts(extra: Mapping[str, str]) -> RefusalFacts:
    """Return the facts in an answer's extra fields. Never raises: the fields come from a peer."""
    if not extra:
        return NO_FACTS
    stages = extra.get("stages", "")
    return RefusalFacts(
        _CAUSES.get(extra.get("cause", "")),
        _STORED.get(extra.get("stored", "")),
        _delay_ms(extra.get("retry_after_ms", "")),
        stages if len(stages) <= STAGES_CHARS_MAX and stages.isprintable() else "",
    )


def remark_text(remark: str) -> str:
    """Return a broker's text as one printable line: it comes from a peer, and goes to terminals and logs."""
    if len(remark) > REMARK_CHARS_MAX:
        remark = remark[:REMARK_CHARS_MAX] + "…"
    return remark if remark.isprintable() else "".join(c if c.isprintable() else " " for c in remark)


def _delay_ms(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return min(int(text), RETRY_AFTER_MS_MAX)
    return 0
