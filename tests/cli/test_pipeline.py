"""``pocketmq pipeline``: its help is cheap, and a missing program is reported with the package to install."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import RunCommand

JOBS = ("archive", "replay", "dedupe", "reconcile", "flow-control")
HELP = """
import sys
from pocketmq.cli.main import main
for job in sys.argv[1].split(","):
    sys.argv = ["pocketmq", "pipeline", job, "--help"]
    try: main()
    except SystemExit as end: assert not end.code
    print([name for name in ("numpy", "pyspark", "pyarrow", "pandas", "uvloop") if name in sys.modules])
"""
CALLS = {
    "archive": ["-t", "t", "-o", "out"],
    "replay": ["in", "-t", "t"],
    "dedupe": ["topic:t", "out"],
    "reconcile": ["topic:a", "topic:b"],
    "flow-control": ["--logs", "README.md", "--output", "out"],
}


def python(*args: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, "PYTHONPATH": "src", "COLUMNS": "120", **environment},
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.slow
def test_help_imports_no_spark_and_shows_examples() -> None:
    """Options and examples, without heavy imports."""
    done = python("-c", HELP, ",".join(JOBS))
    assert done.returncode == 0, done.stderr
    *helps, rest = done.stdout.split("\n[]\n")
    assert (len(helps), rest) == (len(JOBS), ""), "a module that a help has no use for was imported"
    for job, text in zip(JOBS, helps, strict=True):
        assert f"pocketmq pipeline {job} " in text.split("Examples:")[1]
        assert "--master" in text


@pytest.mark.slow
def test_a_script_takes_the_same_options_as_the_command() -> None:
    """There is one definition for both."""
    script = python("-m", "pocketmq.pipeline.jobs.reconcile.command", "--help")
    file = python("pipeline/jobs/reconcile/command.py", "--help")
    command = python("-m", "pocketmq.cli.main", "pipeline", "reconcile", "--help")

    def options(text: str) -> set[str]:
        return {word for word in text.split() if word.startswith("--")}

    assert script.returncode == file.returncode == 0
    assert options(script.stdout) == options(file.stdout) == options(command.stdout)
    assert len(options(script.stdout)) > 15


@pytest.mark.parametrize("job", JOBS)
def test_a_missing_pyspark_is_reported_with_its_extra(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, job: str
) -> None:
    """One line, exit code 2, before any other step."""
    for name in ("pyspark", "pyspark.sql"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "README.md").touch()
    done = run_command("pipeline", job, *CALLS[job], "--namesrv", "127.0.0.1:1")
    assert done.returncode == 2
    assert b"pocketmq[spark]" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_a_missing_java_is_reported_with_what_to_install(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """The report comes before Spark's own launcher fails with a stack trace."""
    pytest.importorskip("pyspark")
    from pocketmq.pipeline import java
    from pocketmq.pipeline.java import JavaMissing
    from pocketmq.pipeline.jobs.common import session

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "USUAL_PLACES", ())
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    with pytest.raises(JavaMissing, match="openjdk-17"), session.job_session("test"):
        pass


@pytest.mark.parametrize(
    ("text", "what", "why"),
    [
        ("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03", "no such path", "file:/x"),
        (
            "x\n  File y\npocketmq.pipeline.errors.BrokerAway: no routes: it is down (waited 5 ms)\nmore",
            "no routes: it is down",
            "",
        ),
        ("something else\nsecond line", "Spark failed", "something else"),
    ],
)
def test_sparks_errors_become_sentences(text: str, what: str, why: str) -> None:
    """Our own errors, which come out of Spark's processes as text, are found; others are shown by their first line."""
    from pocketmq.pipeline.jobs.common.session import explanation

    error = explanation(text)
    assert error.what.startswith(what)
    assert why in error.why
