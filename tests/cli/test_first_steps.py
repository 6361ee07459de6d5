"""``pocketmq`` alone says how to start, and what it says works."""

import re
import shlex
import sys

from pocketmq import __version__
from pocketmq.cli.daemon.plain_arguments import plain_start
from pocketmq.cli.first_steps import FIRST_STEPS
from pocketmq.testing import PocketBroker
from tests.cli.conftest import RunCommand


def commands() -> list[list[str]]:
    """Return the arguments of each command of the text."""
    lines = re.findall(r"^  pocketmq (.+?)  +\S", FIRST_STEPS, re.MULTILINE)
    return [shlex.split(line) for line in lines]


def test_the_command_alone_says_how_to_start(run_command: RunCommand) -> None:
    done = run_command()
    assert (done.returncode, done.stdout.decode(), done.stderr) == (2, FIRST_STEPS + "\n", b"")
    assert max(map(len, FIRST_STEPS.splitlines())) <= 80


def test_the_package_is_the_command_too(run_process: RunCommand) -> None:
    """``python -m pocketmq``, where the environment's programs are on no path."""
    done = run_process("--version", command=[sys.executable, "-m", "pocketmq"])
    assert (done.returncode, done.stdout.decode()) == (0, f"pocketmq {__version__}\n")


def test_what_it_names_works(run_command: RunCommand) -> None:
    """In this order; the first one starts a server."""
    first, *rest = commands()
    assert plain_start(first, {}) is not None
    assert len(rest) == 5
    with PocketBroker() as broker:
        for arguments in rest:
            done = run_command(*arguments, env={"POCKETMQ_NAMESRV": broker.namesrv})
            assert done.returncode == 0, (arguments, done.stderr)
            if arguments[0] == "consume":
                assert done.stdout == b"order 1\n"
