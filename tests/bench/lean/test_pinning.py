"""The cores of a mode, and that a child process stays on them."""

import os
import subprocess
import sys

import pytest

from bench.lean.pinning import chosen, inherited


def test_split_takes_two_cores_and_shared_one() -> None:
    """The quietest first."""
    split, shared = chosen("split", [3, 1, 2]), chosen("shared", [3, 1, 2])
    assert [sorted(split.clients), sorted(split.servers)] == [[3], [1]]
    assert [sorted(shared.clients), sorted(shared.servers)] == [[3], [3]]
    assert str(split) == "clients on core 3, servers on core 1"


def test_split_needs_two_cores() -> None:
    """On one core there is nothing to split."""
    with pytest.raises(ValueError, match="needs two cores"):
        chosen("split", [0])


def test_a_child_inherits_the_cores_and_the_parent_keeps_its_own() -> None:
    """Whatever starts the child."""
    before = os.sched_getaffinity(0)
    core = min(before)
    with inherited(frozenset({core})):
        command = [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert text.strip() == f"{{{core}}}"
    assert os.sched_getaffinity(0) == before
