"""The console form without color, beside structlog's own renderer; exceptions as text."""

import sys
from typing import Any

import structlog.dev
import structlog.processors
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.events import BoundLog, Threshold, exception_text
from pocketmq.common.logs import EVENT_WIDTH, console_line

TEXT_KEYS = ("timestamp", "level", "event", "logger", "logger_name", "exception", "stack")
KEYS = st.sampled_from([*TEXT_KEYS, "b", "a", "port"])
VALUES = st.text(max_size=40) | st.integers() | st.floats(allow_nan=False) | st.booleans() | st.none()
LINES = st.dictionaries(KEYS, VALUES).map(
    lambda line: {
        key: str(value)
        if key in ("timestamp", "level", "event", "logger", "logger_name", "exception", "stack")
        else value
        for key, value in line.items()
    }
)


@given(LINES)
def test_every_line_is_as_structlog_writes_it(line: dict[str, Any]) -> None:
    renderer = structlog.dev.ConsoleRenderer(colors=False, pad_event_to=EVENT_WIDTH)
    assert console_line(line) == renderer(None, "info", dict(line))


def failing(depth: int) -> None:
    if depth:
        failing(depth - 1)
    raise ValueError("no")


def test_an_exception_is_as_structlog_writes_it() -> None:
    try:
        failing(3)
    except ValueError as error:
        for exc_info in (error, True, sys.exc_info()):
            theirs = structlog.processors.format_exc_info(None, "error", {"exc_info": exc_info})
            assert exception_text(exc_info) == theirs["exception"]


def test_values_of_the_event_win_and_levels_below_the_threshold_are_left_out() -> None:
    events: list[tuple[str, dict[str, Any]]] = []
    log = BoundLog(lambda level, line: events.append((level, line)), Threshold(30), {"logger": "x", "n": 1}).bind(
        n=2, remote="r"
    )
    log.debug("a")
    log.info("b")
    log.warning("c", n=3)
    log.error("d", exc_info=None)
    assert events == [
        ("warning", {"logger": "x", "n": 3, "remote": "r", "event": "c"}),
        ("error", {"logger": "x", "n": 2, "remote": "r", "event": "d"}),
    ]
