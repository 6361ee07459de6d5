"""Times as people read them. Lives here: ``time_text``."""

import datetime


def time_text(timestamp_ms: int) -> str:
    """Return ms since 1970 as text in UTC, or as a number where the calendar ends."""
    try:
        when = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"
