"""Numbers, sizes and times as people read them.

Lives here: the filters of the templates.
"""

import datetime
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_LATEST_MS: Final = 253_402_300_799_000
"""The end of the year 9999: a peer may send any number."""


def count(value: float) -> str:
    """Return a number with commas; from a million on it is cut to three digits and a unit."""
    size = abs(value)
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if size >= limit:
            return f"{value / limit:.2f} {unit}"
    return f"{round(value):,}"


def rate(value: float) -> str:
    """Return messages a second; a dash for none."""
    if value <= 0:
        return "–"
    return f"{value:,.1f}/s" if value < 100 else f"{count(value)}/s"


def size(bytes_count: float) -> str:
    """Return bytes in the unit that leaves three digits or fewer before the point."""
    for unit in _UNITS:
        if abs(bytes_count) < 1024 or unit == _UNITS[-1]:
            break
        bytes_count /= 1024
    return f"{bytes_count:.0f} {unit}" if unit == "B" else f"{bytes_count:.1f} {unit}"


def span(ms: float) -> str:
    """Return a time span by its two largest units."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def moment(ms: int) -> str:
    """Return ms since 1970 as UTC, to the ms; a dash for none and for a time beyond the calendar."""
    if not 0 < ms <= _LATEST_MS:
        return "–"
    at = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}Z"


def counted(count_of: int, what: str) -> str:
    """Return ``1 message`` or ``2 messages``."""
    return f"{count(count_of)} {what}" if count_of == 1 else f"{count(count_of)} {what}s"


def number(text: str) -> float:
    """Return the number a broker wrote, 0.0 for anything else."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if abs(value) < 1e300 else 0.0  # also false for nan


def parse_moment(text: str) -> int:
    """Return ms since 1970 of ``2026-11-23T07:00``, with or without seconds and zone (UTC without), or of ms in digits.

    Raise ``ValueError``.
    """
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text)
    at = datetime.datetime.fromisoformat(text)
    if at.tzinfo is None:
        at = at.replace(tzinfo=datetime.UTC)
    return int(at.timestamp() * 1000)
