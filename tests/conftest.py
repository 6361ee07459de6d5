"""How the suite is spread over processes: one file is never split, and the Spark tests share one session."""

from collections.abc import Callable
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling


def pytest_xdist_make_scheduler(config: pytest.Config, log: Callable[..., None]) -> Any:
    """Give whole files to a process; all of ``tests/pipeline`` to one, for a second Spark session costs more."""
    scheduler = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope

    def scope(nodeid: str) -> str:
        path: str = file_of(nodeid)
        return "tests/pipeline" if path.startswith("tests/pipeline/") else path

    scheduler._split_scope = scope
    return scheduler
