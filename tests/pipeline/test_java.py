"""A Java for Spark is found, and its absence is explained."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq.pipeline import java
from pocketmq.pipeline.java import JavaMissing, find_java, why_unfit

ROOT = Path(__file__).parents[2]


def home(directory: Path, version: str, modules: str | None = "java.base jdk.incubator.vector") -> Path:
    """Make a home with a ``java`` that prints its version; with ``modules`` None it lacks the file ``release``."""
    (directory / "bin").mkdir(parents=True)
    program = directory / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    if modules is not None:
        (directory / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return directory


@pytest.fixture(autouse=True)
def usual_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Only a Java of the test is found."""
    monkeypatch.setattr(java, "USUAL_PLACES", (str(tmp_path / "usual" / "*"),))
    return tmp_path / "usual"


@pytest.mark.parametrize(
    ("version", "modules", "why"),
    [
        ("17.0.15", "java.base jdk.incubator.vector", ""),
        ("25", None, ""),
        ("21-ea", None, ""),
        ("1.8.0_402", None, "has Java 8"),
        ("11.0.2", "java.base jdk.incubator.vector", "has Java 11"),
        ("17.0.1", "java.base java.xml", "lacks the module jdk.incubator.vector"),
        ("none", None, "has no java that starts"),
    ],
)
def test_a_java_is_judged(tmp_path: Path, version: str, modules: str | None, why: str) -> None:
    """Its file ``release`` decides, else its own output."""
    assert why_unfit(home(tmp_path / "java", version, modules)) == why


def test_the_first_that_fits_is_taken(tmp_path: Path, usual_places: Path) -> None:
    """JAVA_HOME, then PATH, then the usual places; one that is too old does not end the search."""
    old = home(tmp_path / "old", "11")
    usual = home(usual_places / "java-21", "21")
    assert find_java({"JAVA_HOME": str(old), "PATH": ""}) == usual.resolve()
    on_path = home(tmp_path / "path", "17")
    path = str(on_path / "bin")
    assert find_java({"JAVA_HOME": str(old), "PATH": path}) == on_path.resolve()
    wanted = home(tmp_path / "wanted", "25")
    assert find_java({"JAVA_HOME": str(wanted), "PATH": path}) == wanted.resolve()


def test_a_missing_java_is_explained(tmp_path: Path) -> None:
    """The error names the unsuitable ones, and the exact command."""
    with pytest.raises(JavaMissing, match=r"has Java 11.*apt-get install openjdk-17-jre-headless"):
        find_java({"JAVA_HOME": str(home(tmp_path / "old", "11")), "PATH": ""})
    with pytest.raises(JavaMissing, match="no java in JAVA_HOME"):
        find_java({"PATH": ""})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ci", "outcome"), [pytest.param("", "1 skipped", marks=pytest.mark.soak), ("true", "1 error")]
)
def test_spark_tests_without_java_do_not_vanish(ci: str, outcome: str) -> None:
    """They are skipped with a section of their own in the summary; in CI they fail."""
    program = (
        "import sys, pytest\n"
        "from pocketmq.pipeline import java\n"
        "java.USUAL_PLACES = ()\n"
        "sys.exit(pytest.main(['tests/pipeline/source/test_source.py', '-q', '-p', 'no:cacheprovider',"
        " '-W', 'ignore::pytest.PytestAssertRewriteWarning',"
        " '-k', 'reading_errors_name']))\n"
    )
    environment = {**os.environ, "PATH": "", "JAVA_HOME": "", "CI": ci, "PYTHONPATH": str(ROOT / "src")}
    for name in ("POCKETMQ_MAY_LACK", "POCKETMQ_TESTS"):  # the soak leaves out the test that is run here
        environment.pop(name, None)
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100
    )
    assert outcome in run.stdout, run.stdout + run.stderr
    assert (run.returncode == 0) == (not ci)
    assert "Spark was NOT tested" in run.stdout
    assert "apt-get install openjdk-17-jre-headless" in run.stdout
