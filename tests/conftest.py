"""How the suite is distributed over processes, and how many examples it tries.

One file is never split, and the tests that share the Spark session run in one process. ``tests/profiles.py`` says what
differs between ``make test`` and ``make deep``.
"""

import contextlib
import functools
import gc
import importlib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import is_hypothesis_test
from xdist.scheduler import LoadFileScheduling

from tests import profiles

TAKES_SPARK = re.compile(r"\bspark: \"?SparkSession")
"""The session's fixture among the arguments of a test, in the form that all its users share."""
SPARK_SCOPE: Final = "spark"
SLOW_WEIGHT: Final = 20
"""How many other tests take as long as one that is marked slow."""

# Python keeps what it compiled, in each process of the run, whatever the environment says: images of containers often
# forbid it, and then every daemon that a test starts, and every process of xdist, compiles the whole product again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

gc.disable()  # until the tests are collected: nothing of them is garbage

profiles.load()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give Hypothesis a seed that can be printed; the processes of xdist get it with the options."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = profiles.hypothesis_seed()


def pytest_report_header(config: pytest.Config) -> str:
    """Return the line that names the profile and the seed."""
    return _seed_line(config)


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Repeat the seed where something failed."""
    if exitstatus == pytest.ExitCode.TESTS_FAILED:
        terminalreporter.write_line(_seed_line(config))


def _seed_line(config: pytest.Config) -> str:
    return f"profile: {profiles.profile()}, --hypothesis-seed={config.option.hypothesis_seed}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the soak profile, count every test that tries more there as part of the soak; begin with the longest files."""
    if profiles.profile() == "soak":
        for item in items:
            if _tries_more_in_soak(item):
                item.add_marker(pytest.mark.soak)
    if hasattr(config, "workerinput"):
        _put_longest_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let the garbage collector see what the tests make, and nothing that is older.

    The modules and tests of a whole run are half a million objects in each process. To walk them all takes half a
    second, and the objects of the tests cause it hundreds of times.
    """
    _import_in_turn(session.config)
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_in_turn(config: pytest.Config) -> None:
    """Of a whole run, begin with another part of the modules in each process.

    Each process imports all of them. After a change, pytest has to compile them with its assertions, which takes three
    times as long as the import; so each process compiles its part, and finds the others' parts done. A module that
    cannot be imported is tried again by the collection, which reports it.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    paths = sorted(path.relative_to(config.rootpath) for path in (config.rootpath / "tests").rglob("test_*.py"))
    first = len(paths) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for path in paths[first:] + paths[:first]:
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.with_suffix("").parts))


def _tries_more_in_soak(item: pytest.Item) -> bool:
    """Return whether a test has more examples or lives in a soak, or runs Spark as users do."""
    if is_hypothesis_test(getattr(item, "obj", None)) or item.get_closest_marker("scaled"):
        return True
    return "spark" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("scenario")


def _put_longest_first(items: list[pytest.Item]) -> None:
    """Put the longest work first: the tests of the Spark session, then files with many slow tests. A long file that
    starts last keeps one process busy while the others have no work left.
    """
    length: Counter[str] = Counter()
    for item in items:
        length[_scope_of(item.path)] += SLOW_WEIGHT if item.get_closest_marker("slow") else 1
    length[SPARK_SCOPE] *= len(items) * SLOW_WEIGHT
    items.sort(key=lambda item: (-length[_scope_of(item.path)], str(item.path)))


@functools.cache
def _scope_of(path: Path) -> str:
    """Return the name of what one process runs as a whole: the file, or all that take the Spark session."""
    return SPARK_SCOPE if TAKES_SPARK.search(path.read_text()) else str(path)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Callable[..., None]) -> Any:
    """Give whole files to a process, in order, and all Spark tests to one, because a second session costs more."""
    config.option.loadscopereorder = False
    scheduler = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope
    scheduler._split_scope = lambda nodeid: _scope_of(config.rootpath / file_of(nodeid))
    return scheduler
