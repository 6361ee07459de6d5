"""Which newer Python CI uses."""

import stat
import sys
from pathlib import Path

import pytest

from tests.ci import newer
from tests.ci.newer import NO_ANSWER, candidates, first_that_runs


def interpreter(path: Path, exit_code: int) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\nexit {exit_code}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_newest_that_runs_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found also where an installed one does not start; older ones and the present one are left out."""
    monkeypatch.setenv("PATH", "")
    now = sys.version_info.minor
    monkeypatch.setattr(newer, "MINORS", (now + 2, now + 1, now, now - 1))
    for minor, code in ((now + 2, 1), (now + 1, 0), (now, 0), (now - 1, 0)):
        interpreter(tmp_path / f"versions/3.{minor}.1/bin/python3.{minor}", code)
    found = candidates(tmp_path)
    assert [path.name for path in found] == [f"python3.{now + 2}", f"python3.{now + 1}"]
    assert first_that_runs(found) == found[1]
    assert first_that_runs([]) is None


@pytest.mark.parametrize(
    ("said", "is_registry"),
    [
        ("Retrying after connection broken by 'NewConnectionError(...)'", True),
        ("ERROR: HTTP error 503 while getting https://", True),
        ("ERROR: No matching distribution found for rocksdict>=0.3.25", False),
        ("error: command 'gcc' failed", False),
    ],
)
def test_a_registry_that_does_not_answer_is_told_apart(said: str, is_registry: bool) -> None:
    assert bool(NO_ANSWER.search(said)) is is_registry
