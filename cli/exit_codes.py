"""The exit codes of ``pocketmq``.

Lives here: the codes, the code of each error, and their text in ``pocketmq --help``.
"""

import enum
from typing import Final

from pocketmq.common.errors import Cause, ConfigError, PocketMQError


class ExitCode(enum.IntEnum):
    """Exit codes of the command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CANNOT_START = 3
    NOT_REACHABLE = 4
    INTERRUPTED = 130


EXIT_CODES_HELP: Final = (
    "Exit codes: 0 ok; 1 failed; 2 wrong usage or setting; 3 the daemon cannot start (port or store in use, no such "
    "directory); 4 no name server or broker can be reached; 130 interrupted."
)


class CannotStart(PocketMQError):
    """A daemon cannot start: a port, a file or a directory is in use or missing."""


class CommandFailed(PocketMQError):
    """A command failed for a reason outside of PocketMQ."""


def exit_code_of(error: PocketMQError) -> ExitCode:
    """Return the exit code for an error that ended a command."""
    if isinstance(error, CannotStart):
        return ExitCode.CANNOT_START
    if isinstance(error, ConfigError) or error.cause is Cause.CONFIG:
        return ExitCode.USAGE
    if error.cause is Cause.CONNECTION:
        return ExitCode.NOT_REACHABLE
    return ExitCode.FAILED
