"""What ``--from`` and ``--to`` may say: a word, a time, or how long ago.

Lives here: ``parse_start``. Not here: what a position means for a queue (``client``).
"""

import datetime
import re

from pocketmq.common.errors import ConfigError

WORDS = ("earliest", "latest", "committed")

_AGO = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_start(text: str, now_ms: int) -> str | int:
    """Return one of ``WORDS``, or ms since 1970.

    Those come from ``2026-11-21T07:00:00Z`` (UTC if no zone is given), ``1763708400000``, or ``15m`` (that long ago).
    Raise ``ConfigError`` for anything else.
    """
    if text in WORDS:
        return text
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    if match := _AGO.fullmatch(text):
        return max(0, now_ms - int(match[1]) * _UNIT_MS[match[2]])
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        hint = "write earliest, latest, committed, 2026-11-21T07:00:00Z, ms since 1970, or 15m (ago)"
        raise ConfigError("bad position", why=repr(text), hint=hint) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    return max(0, int(when.timestamp() * 1000))
