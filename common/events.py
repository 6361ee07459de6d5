"""Structured events: what a layer needs from a log.

Lives here: the ``EventLog`` protocol and ``NullLog``, which drops everything.
"""

from typing import Any, Protocol


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
