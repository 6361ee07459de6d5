"""The SDK's events on Python's own logging, so that they go wherever the application's logs go.

Lives here: the adapter. Nothing is configured: without a handler Python prints warnings and errors to stderr.
"""

import logging
from typing import Any

from pocketmq.common.printable import printable

LOGGER_NAME = "pocketmq.client"


class StandardLog:
    """An ``EventLog`` on a standard logger: ``event key=value key=value``."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger if logger is not None else logging.getLogger(LOGGER_NAME)

    def info(self, event: str, **fields: Any) -> None:
        """Record a normal event."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Record an event that an operator should know."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Record an event that needs attention."""
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            exc_info = fields.pop("exc_info", None)
            data = printable(" ".join(f"{name}={value}" for name, value in fields.items()))
            self._logger.log(level, "%s %s", event, data, exc_info=exc_info)
