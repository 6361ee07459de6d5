"""Structured events: what a layer needs from a log.

Lives here: the ``EventLog`` protocol and ``NullLog``, which drops everything.
"""

from typing import Any, Protocol


class EventLog(Protocol):
    """Takes facts: a snake_case event and its data in fields with units. Never blocks, never raises."""

    def info(self, event: str, **fields: Any) -> Any:
        """Record what is normal."""
        ...

    def warning(self, event: str, **fields: Any) -> Any:
        """Record what an operator should know."""
        ...

    def error(self, event: str, **fields: Any) -> Any:
        """Record what somebody must look into."""
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
