"""Numbers as people read them.

Lives here: ``bytes_text``, ``plural``.
"""

import math
from typing import Final

NO_DATA: Final = "no data"
"""Stands for a number that is not known."""
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def bytes_text(value: float) -> str:
    """Return a size in binary units.

    >>> bytes_text(512), bytes_text(1536), bytes_text(268435456)
    ('512 B', '1.5 KiB', '256 MiB')
    """
    if not math.isfinite(value):
        return NO_DATA
    size, step = float(value), 0
    while abs(size) >= 1024 and step < len(_SIZES) - 1:
        size, step = size / 1024, step + 1
    text = f"{size:.1f}".removesuffix(".0") if abs(size) < 100 and step else f"{size:,.0f}"
    return f"{text} {_SIZES[step]}"


def plural(value: int, one: str, many: str = "") -> str:
    """Return a count with its noun.

    >>> plural(1, "request"), plural(2000, "request")
    ('1 request', '2,000 requests')
    """
    return f"{value:,} {one if value == 1 else many or one + 's'}"
