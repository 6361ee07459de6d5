"""Structured events: what a layer needs from a log.

Lives here: the ``EventLog`` protocol, ``NullLog``, which drops everything, ``BoundLog``, which carries values and hands
each event to a queue (``Logs`` makes it), its ``Threshold``; the text of an exception.
"""

import sys
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Protocol


class EventLog(Protocol):
    """Takes facts: a snake_case event and its data in fields with units. Never blocks, never raises."""

    def info(self, event: str, **fields: Any) -> Any:
        """Record a normal event."""
        ...

    def warning(self, event: str, **fields: Any) -> Any:
        """Record an event that an operator should know."""
        ...

    def error(self, event: str, **fields: Any) -> Any:
        """Record an event that an operator must investigate."""
        ...


class NullLog:
    """Drops every event."""

    __slots__ = ()

    def info(self, event: str, **fields: Any) -> None:
        """Drop it."""

    def warning(self, event: str, **fields: Any) -> None:
        """Drop it."""

    def error(self, event: str, **fields: Any) -> None:
        """Drop it."""


LEVELS: Final[Mapping[str, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}

Enqueue = Callable[[str, dict[str, Any]], None]
"""Takes a level and an event with its values; never waits, never raises."""


class Threshold:
    """The lowest level that a logger writes, which may change: all loggers of a name share one."""

    __slots__ = ("level",)

    def __init__(self, level: int) -> None:
        self.level = level


class BoundLog:
    """An ``EventLog`` whose events have the values it is bound to; below ``threshold`` they cost one comparison.

    ``exc_info`` (an exception, True for the current one) becomes ``exception``, its traceback as text.
    """

    __slots__ = ("_enqueue", "_threshold", "_values")

    def __init__(self, enqueue: Enqueue, threshold: Threshold, values: Mapping[str, Any]) -> None:
        self._enqueue = enqueue
        self._threshold = threshold
        self._values = dict(values)

    def bind(self, **values: Any) -> "BoundLog":
        """Return a logger that adds ``values`` to each event."""
        return BoundLog(self._enqueue, self._threshold, {**self._values, **values})

    def debug(self, event: str, **values: Any) -> None:
        """Log an event for developers."""
        if self._threshold.level <= LEVELS["debug"]:
            self._log("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        """Log a normal event."""
        if self._threshold.level <= LEVELS["info"]:
            self._log("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        """Log an event that an operator should know."""
        if self._threshold.level <= LEVELS["warning"]:
            self._log("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        """Log an event that an operator must investigate."""
        self._log("error", event, values)

    def exception(self, event: str, **values: Any) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        self.error(event, **{"exc_info": True, **values})

    def _log(self, level: str, event: str, values: dict[str, Any]) -> None:
        line = {**self._values, **values, "event": event}
        exc_info = line.pop("exc_info", None)
        if exc_info:
            line["exception"] = exception_text(exc_info)
        self._enqueue(level, line)


def exception_text(exc_info: object) -> str:
    """Return a traceback as Python prints it, without the last line end; "" where there is no exception."""
    error: BaseException | None
    trace: TracebackType | None
    if isinstance(exc_info, BaseException):
        error, trace = exc_info, exc_info.__traceback__
    elif isinstance(exc_info, tuple):
        _, error, trace = exc_info
    else:
        _, error, trace = sys.exc_info()
    if error is None:
        return ""
    return "".join(traceback.format_exception(type(error), error, trace)).removesuffix("\n")
