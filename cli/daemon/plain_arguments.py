"""A short way to start a server: its usual arguments, parsed without typer.

Lives here: ``plain_start``. typer and what it imports cost each start of a broker 0.1 s and 10 MB. Everything that is
not plain (help, a mistake, a value that begins with ``-``) is left to typer, which alone words what is wrong.
"""

import gc
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pocketmq.cli.daemon.daemon_settings import SETTINGS_OF, given_settings
from pocketmq.cli.exit_codes import ExitCode

PORT_OPTIONS: Final = ("--namesrv-port", "--broker-port", "--metrics-port", "--dashboard-port")
PORT_MAX: Final = 65_535
FLAGS: Final = ("--accept-loss", "--open")
CONFIG: Final = "--config"
PROFILE: Final = "--profile"
SET: Final = "--set"
SHORT: Final[Mapping[str, str]] = {"-d": "--data-dir", "-c": CONFIG}
VARIABLES: Final[Mapping[str, str]] = {"--namesrv": "POCKETMQ_NAMESRV"}
"""Option → the environment variable that stands for it."""
LEFT_TO_TYPER: Final = ("POCKETMQ_DEBUG", "_POCKETMQ_COMPLETE")
"""Variables with which no start is plain."""
ONE_BLAS_THREAD: Final = ("OPENBLAS_NUM_THREADS", "1")
"""NumPy starts a thread for each core, for matrices; a broker has none. They cost 50 ms of CPU at the start."""
PORT: Final = re.compile("[0-9]{1,5}")


@dataclass(slots=True)
class PlainStart:
    """A server and its arguments. ``values``: option → value."""

    command: str
    values: dict[str, object] = field(default_factory=dict)
    config: str | None = None
    profile: str | None = None
    sets: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises what ``run_daemon`` raises."""
        os.environ.setdefault(*ONE_BLAS_THREAD)
        gc.disable()
        from pocketmq.cli.daemon.daemon import Shape, run_daemon

        gc.freeze()  # modules and classes live as long as the process: no later collection walks them
        gc.enable()
        shape = Shape(namesrv=self.command != "broker", broker=self.command != "namesrv")
        try:
            run_daemon(shape, given_settings(self.command, self.values), self.config, self.sets, self.profile)
        except KeyboardInterrupt:  # before the server handles signals
            print("Aborted.", file=sys.stderr)
            sys.exit(ExitCode.FAILED)


def plain_start(arguments: Sequence[str], environment: Mapping[str, str]) -> PlainStart | None:
    """Return the server that plain arguments start, or None: parse them with typer."""
    if not arguments or arguments[0] not in SETTINGS_OF or any(environment.get(name) for name in LEFT_TO_TYPER):
        return None
    start = PlainStart(arguments[0])
    options = SETTINGS_OF[start.command]
    for option, variable in VARIABLES.items():
        if option in options and environment.get(variable):
            start.values[option] = environment[variable]
    words = iter(arguments[1:])
    for word in words:
        name, equals, value = word.partition("=") if word.startswith("--") else (SHORT.get(word, ""), "", "")
        if name in FLAGS and name in options and not equals:
            start.values[name] = True
            continue
        if name not in options and name not in (CONFIG, SET, PROFILE):
            return None
        if name == PROFILE and start.command == "namesrv":
            return None
        if not equals:
            following = next(words, None)
            if following is None or following.startswith("-"):
                return None
            value = following
        if name in FLAGS or (name in PORT_OPTIONS and not (PORT.fullmatch(value) and int(value) <= PORT_MAX)):
            return None
        if name == SET:
            start.sets.append(value)
        elif name == CONFIG:
            start.config = value
        elif name == PROFILE:
            start.profile = value
        else:
            start.values[name] = int(value) if name in PORT_OPTIONS else value
    return start
