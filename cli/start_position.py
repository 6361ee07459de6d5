"""The values of ``--from``, ``--until``, ``--to``, ``--timeout``, ``--delay``, ``--deliver-at``.

Lives here: ``parse_start``, ``parse_bound``, ``parse_duration``, ``parse_time``.
"""

import datetime
import math
import re
import time
from typing import Literal, get_args

from pocketmq.common.errors import ConfigError

Word = Literal["earliest", "latest", "committed"]
WORDS: dict[str, Word] = {word: word for word in get_args(Word)}

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
_AGO = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_start(text: str, now_ms: int) -> Word | int:
    """Return one of ``WORDS``, or ms since 1970.

    The text may be ``2026-11-21T07:00:00Z`` (UTC without a zone), ``1763708400000``, or ``15m`` (that long ago).
    Raise ``ConfigError`` for anything else.
    """
    if text in WORDS:
        return WORDS[text]
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    if match := _AGO.fullmatch(text):
        return max(0, now_ms - int(match[1]) * _UNIT_MS[match[2]])
    found = _calendar_ms(text)
    if found is None:
        hint = "write earliest, latest, committed, 2026-11-21T07:00:00Z, ms since 1970, or 15m (ago)"
        raise ConfigError("bad position", why=repr(text), hint=hint)
    return max(0, found)


def parse_bound(name: str, text: str) -> int | None:
    """Return the ms since 1970 of a time option, None if it was not given. Raise ``ConfigError`` for a word."""
    if not text:
        return None
    when = parse_start(text, time.time_ns() // 1_000_000)
    if isinstance(when, str):
        raise ConfigError(f"bad {name}", why=repr(text), hint="write 2026-11-21T07:00:00Z, ms since 1970, or 15m (ago)")
    return when


def parse_duration(name: str, text: str) -> int:
    """Return the ms of ``500ms``, ``30s``, ``15m``, ``2h`` or ``3d``. Raise ``ConfigError`` for anything else."""
    match = _AGO.fullmatch(text)
    if match is None or len(match[1]) > 12:
        raise ConfigError(f"bad {name}", why=repr(text), hint="write 500ms, 30s, 15m, 2h or 3d")
    return int(match[1]) * _UNIT_MS[match[2]]


def parse_time(text: str) -> int:
    """Return the ms since 1970 of ``2026-11-21T07:00:00Z`` (UTC without a zone) or ``1763708400000``, rounded up.
    Raise ``ConfigError`` for anything else.
    """
    if text.isascii() and text.isdecimal() and len(text) <= 15:
        return int(text)
    found = _calendar_ms(text)
    if found is None or found < 0:
        raise ConfigError("bad time", why=repr(text), hint="write 2026-11-21T07:00:00Z or ms since 1970")
    return found


def _calendar_ms(text: str) -> int | None:
    """Return the ms since 1970 of a time in ISO form, rounded up; None for another text."""
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    return math.ceil((when - _EPOCH) / datetime.timedelta(milliseconds=1))
