"""How the suite is spread over processes, and how much it tries.

One file is never split, and the tests that share the Spark session run in one process. ``tests/profiles.py`` says what
differs between ``make test`` and ``make soak``.
"""

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import is_hypothesis_test
from xdist.scheduler import LoadFileScheduling

from tests import profiles

TAKES_SPARK = re.compile(r"\bspark: \"?SparkSession")
"""The session's fixture among the arguments of a test, as all that take it write it."""

profiles.load()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give Hypothesis a seed that can be printed; the processes of xdist get it with the options."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = profiles.hypothesis_seed()


def pytest_report_header(config: pytest.Config) -> str:
    """Say which profile runs with which seed."""
    return _seed_line(config)


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Repeat the seed where something failed."""
    if exitstatus == pytest.ExitCode.TESTS_FAILED:
        terminalreporter.write_line(_seed_line(config))


def _seed_line(config: pytest.Config) -> str:
    return f"profile: {profiles.profile()}, --hypothesis-seed={config.option.hypothesis_seed}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """In the soak profile, count every test that tries more there as part of the soak."""
    if profiles.profile() == "soak":
        for item in items:
            if is_hypothesis_test(getattr(item, "obj", None)) or item.get_closest_marker("scaled"):
                item.add_marker(pytest.mark.soak)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Callable[..., None]) -> Any:
    """Give whole files to a process; all that need the Spark session to one, for a second session costs more."""
    scheduler = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope

    @functools.cache
    def scope_of_file(path: str) -> str:
        return "spark" if TAKES_SPARK.search((config.rootpath / path).read_text()) else path

    scheduler._split_scope = lambda nodeid: scope_of_file(file_of(nodeid))
    return scheduler
