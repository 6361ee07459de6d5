"""Numbers as text: times, shares and counts with their units.

Lives here: the format of every number that the doctor prints (sizes: ``common.units``), and the cleaning of a peer's
text.
"""

import math
from typing import Final

from pocketmq.common.units import NO_DATA

TEXT_LENGTH_MAX: Final = 300
"""Longer text of a peer is cut: a remark is one line."""


def count_text(value: float) -> str:
    """Return a count with thousands separated.

    >>> count_text(12345)
    '12,345'
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}"


def ms_text(value_ms: float) -> str:
    """Return a time in the unit that reads best.

    >>> ms_text(0.0042), ms_text(0.42), ms_text(3.14), ms_text(250.4), ms_text(1250), ms_text(90_000)
    ('4.2 µs', '0.42 ms', '3.1 ms', '250 ms', '1.25 s', '90 s')
    """
    size = abs(value_ms)
    if not math.isfinite(size):
        return NO_DATA
    if size >= 10_000:
        return f"{value_ms / 1000:,.0f} s"
    if size >= 1000:
        return f"{value_ms / 1000:.2f} s"
    if 0 < size < 0.1:
        return f"{value_ms * 1000:.{0 if size >= 0.01 else 1}f} µs"
    digits = 0 if size >= 100 else 1 if size >= 1 else 2
    return f"{value_ms:.{digits}f} ms" if size else "0 ms"


def us_text(value_us: float) -> str:
    """Return a time in µs in the unit that reads best."""
    return ms_text(value_us / 1000)


def percent_text(share: float) -> str:
    """Return a share of 1 as percent.

    >>> percent_text(0.054), percent_text(0.5), percent_text(0.0)
    ('5.4 %', '50 %', '0 %')
    """
    if not math.isfinite(share):
        return NO_DATA
    value = share * 100
    return f"{value:.1f} %" if 0 < abs(value) < 10 else f"{value:.0f} %"


def rate_text(value: float) -> str:
    """Return a rate per second; small ones keep a digit."""
    if not math.isfinite(value):
        return NO_DATA
    return f"{value:,.1f}/s" if 0 < abs(value) < 100 else f"{value:,.0f}/s"


def seconds_text(seconds: float) -> str:
    """Return a length of time in words.

    >>> seconds_text(60), seconds_text(3600), seconds_text(200_000)
    ('60 s', '60 min', '2.3 days')
    """
    if not math.isfinite(seconds):
        return NO_DATA
    if abs(seconds) < 600:
        return f"{seconds:.0f} s" if seconds == int(seconds) or seconds >= 10 else f"{seconds:.1f} s"
    if abs(seconds) < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if abs(seconds) < 172_800 else f"{seconds / 86_400:.1f} days"


def clean(text: str) -> str:
    """Return a peer's text fit for a terminal: one line of bounded length, without control characters."""
    line = "".join(character if character.isprintable() else " " for character in text[: TEXT_LENGTH_MAX + 1])
    return line if len(line) <= TEXT_LENGTH_MAX else line[: TEXT_LENGTH_MAX - 1] + "…"
