"""The console form of a log line: structlog's, without color, and without its imports.

Lives here: ``console_line``. Importing structlog costs a broker 50 ms and 5 MB: it imports rich, pygments and more. On
a terminal, where lines have colors, structlog's own renderer is used.
"""

from collections.abc import Mapping
from typing import Any, Final

EVENT_WIDTH: Final = 28
LEVEL_WIDTH: Final = 9
"""Of ``exception``, structlog's longest level."""
QUOTED: Final = frozenset(" \t=\r\n\"'")
"""A text with one of these is shown as Python writes it."""


def console_line(line: Mapping[str, Any]) -> str:
    """Return a line without its end. ``line``: timestamp, level, event, logger and values, as for structlog."""
    rest = dict(line)
    exception = rest.pop("exception", None)
    stack = rest.pop("stack", None)
    rest.pop("exc_info", None)
    columns = []
    if "timestamp" in rest:
        columns.append(str(rest.pop("timestamp")))
    if "level" in rest:
        columns.append(f"[{rest.pop('level'):<{LEVEL_WIDTH}}]")
    if "event" in rest:
        columns.append(f"{rest.pop('event')!s:<{EVENT_WIDTH}}")
    columns += [f"[{rest.pop(key)}]" for key in ("logger", "logger_name") if key in rest]
    columns += [f"{key}={_value(rest[key])}" for key in sorted(rest)]
    text = " ".join(column for column in columns if column).rstrip(" ")
    if stack is not None:
        text += f"\n{stack}"
        if exception is not None:
            text += "\n\n" + "=" * 79 + "\n"
    return text if exception is None else f"{text}\n{exception}"


def _value(value: object) -> str:
    return value if isinstance(value, str) and not QUOTED.intersection(value) else repr(value)
