"""The table of commands, and what a command does not import."""

import json
import subprocess
import sys
from typing import Final

import pytest

from pocketmq.cli.app import COMMANDS, RootOptions, build_command
from tests.cli.conftest import environment

SCRIPT: Final = """
import json, sys
sys.argv = ["pocketmq", *json.loads(sys.argv[1])]
from pocketmq.cli.main import main
try:
    main()
except SystemExit as end:
    assert end.code == 4, end.code
print(json.dumps(sorted(sys.modules)))
"""
OF_OTHERS: Final = (
    *("pocketmq.broker", "pocketmq.store", "pocketmq.namesrv", "pocketmq.pipeline", "pocketmq.testing"),
    *("pocketmq.cli.messages", "pocketmq.cli.bench", "pocketmq.cli.scenario", "pocketmq.cli.doctor"),
    *("pocketmq.cli.log", "pocketmq.cli.pipeline", "pocketmq.cli.config", "pocketmq.cli.daemon.cluster"),
    *("pocketmq.cli.admin.group", "pocketmq.cli.admin.ha", "pocketmq.cli.admin.lock"),
    *("rich", "pyarrow", "prometheus_client", "structlog", "lark", "pyspark"),
)
"""What ``topic list`` has no use for, and what none of its output needs in a pipe."""


@pytest.mark.slow
def test_a_command_loads_its_own_module_and_not_those_of_others() -> None:
    """``topic list`` talks to a name server that does not answer; each import of these would cost every call."""
    command = [sys.executable, "-c", SCRIPT, json.dumps(["topic", "list", "--namesrv", "127.0.0.1:1"])]
    done = subprocess.run(command, capture_output=True, timeout=100, check=True, env=environment())
    modules = json.loads(done.stdout)
    assert "pocketmq.cli.admin.topic" in modules
    roots = {module for module in modules for other in OF_OTHERS if module == other or module.startswith(f"{other}.")}
    assert roots == set()


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_arguments_that_name_a_command_build_only_that_one(row: object) -> None:
    name = getattr(row, "name", "")
    assert list(build_command(RootOptions(), ["--debug", name, "x"]).commands) == [name]


@pytest.mark.parametrize("arguments", [(), ("--help",), ("topc", "list"), ("--version",)])
def test_other_arguments_build_all_commands(arguments: tuple[str, ...]) -> None:
    """Help lists them, and a mistyped name is compared with them."""
    assert list(build_command(RootOptions(), arguments).commands) == [row.name for row in COMMANDS]
