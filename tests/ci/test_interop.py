"""How CI judges the interop tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ci.interop import KNOWN, judge, read_known
from tests.ci.suite import QUIET, RETRIES_MAX, Outcome, Report, read_results, run_suite

TRANSFER = "RuntimeError: Maven does not resolve pom-client-5.3.xml:\nCould not transfer artifact a:b:1 from central: "


def passes(test: str) -> Outcome:
    return Outcome(0, True, passed=1)


def fails(why: str) -> Callable[[str], Outcome]:
    return lambda test: Outcome(1, True, failed={test: why})


def never(test: str) -> Outcome:
    raise AssertionError(f"{test} is tried again")


REPORT = Report("interop", Path("nowhere"))


def test_a_clean_run_is_good_and_nothing_is_tried_again() -> None:
    verdict = judge(Outcome(0, True, passed=9), never, {}, [])
    assert verdict.is_good
    assert verdict.lines(REPORT) == []


def test_what_fails_twice_fails_ci_and_what_fails_once_does_not() -> None:
    first = Outcome(1, True, failed={"a": "AssertionError"})
    assert judge(first, passes, {}, []).recovered == ["a"]
    assert judge(first, passes, {}, []).is_good
    verdict = judge(first, fails("TimeoutError"), {}, [])
    assert (verdict.broken, verdict.is_good) == (["a"], False)
    (told,) = verdict.lines(REPORT)
    assert told.splitlines()[0] == "interop: BROKEN (twice): a"
    assert "AssertionError" in told
    assert "TimeoutError" in told


def test_what_passes_the_second_time_is_one_line_and_its_traceback_a_file(tmp_path: Path) -> None:
    why = "AssertionError: assert 1 == 2\n\ndef test_a():\n>   assert 1 == 2\nE   assert 1 == 2"
    test = "tests/interop/test_a.py::test_a[4.9-x/y]"
    verdict = judge(Outcome(1, True, failed={test: why}), passes, {}, [])
    (told,) = verdict.lines(Report("interop", tmp_path / "kept"))
    (file,) = (tmp_path / "kept").iterdir()
    line = f"interop: failed once, then passed: {test}: AssertionError: assert 1 == 2"
    assert told == f"{line} (whole: {file})"
    assert file.read_text() == f"{test}\n\n{why}\n"


def test_a_second_try_that_runs_nothing_or_does_not_end_is_no_success() -> None:
    first = Outcome(1, True, failed={"a": "AssertionError"})
    assert judge(first, lambda test: Outcome(0, True), {}, []).broken == ["a"]
    assert judge(first, lambda test: Outcome(0, False, passed=1), {}, []).broken == ["a"]


def test_a_known_failure_may_fail_and_a_new_one_beside_it_not() -> None:
    first = Outcome(1, True, failed={"a": "AssertionError", "b": "AssertionError"})
    verdict = judge(first, fails("AssertionError"), {"a": "a bug of RocketMQ's"}, [])
    assert (verdict.known, verdict.broken) == (["a"], ["b"])


@pytest.mark.parametrize(
    ("why", "is_registry"),
    [
        (TRANSFER + "Connect timed out", True),
        (TRANSFER + "status code: 503, reason phrase: Service Unavailable", True),
        (TRANSFER + "status code: 404, reason phrase: Not Found", False),
        ("Unknown host repo.maven.apache.org", True),
        ("Could not find artifact a:b:99 in central", False),
        ("subprocess.TimeoutExpired: Command '['mvn', '-q', '-B']' timed out after 240.0 seconds", True),
        ("AssertionError: no answer for 30 s", False),
    ],
)
def test_a_registry_that_does_not_answer_is_no_failure(why: str, is_registry: bool) -> None:
    verdict = judge(Outcome(1, True, failed={"a": why}), fails("AssertionError"), {}, [])
    assert verdict.is_good is is_registry
    assert verdict.unanswered == (["a"] if is_registry else [])


def test_a_skipped_test_fails_ci_unless_a_registry_kept_its_program_back() -> None:
    first = Outcome(0, True, skipped={"a": "interop tests need mvn\nand more"})
    verdict = judge(first, never, {}, [])
    assert not verdict.is_good
    assert verdict.lines(REPORT) == ["interop: SKIPPED: a: interop tests need mvn"]
    assert judge(first, never, {}, ["mvn"]).is_good
    assert not judge(first, never, {}, ["redis-server"]).is_good


def test_many_failures_are_not_tried_again() -> None:
    first = Outcome(1, True, failed={f"t{number}": "AssertionError" for number in range(RETRIES_MAX + 1)})
    assert len(judge(first, never, {}, []).broken) == RETRIES_MAX + 1


def test_a_run_that_reached_its_bound_or_collected_nothing_fails() -> None:
    assert not judge(Outcome(2, False, passed=3), never, {}, []).is_good
    nothing = judge(Outcome(5, True), never, {}, [])
    assert nothing.broken == ["pytest ended with 5"]
    assert nothing.lines(REPORT) == ["interop: BROKEN: pytest ended with 5"]


def test_each_known_failure_has_a_reason() -> None:
    read_known(KNOWN.read_text())
    assert read_known("# remark\n\ntests/a.py::b[x y]  # why\n") == {"tests/a.py::b[x y]": "why"}
    with pytest.raises(ValueError, match="line 1"):
        read_known("tests/a.py::b")


SAMPLE = """
import pytest
def test_good(): pass
@pytest.mark.parametrize("p", ["x - y", "::z"])
def test_bad(p): assert not p
class TestInside:
    def test_deep(self): assert 0
@pytest.fixture
def broken(): raise RuntimeError("Unknown host x")
def test_error(broken): pass
def test_skip(): pytest.skip("needs mvn")
"""


@pytest.mark.slow
def test_results_are_read_back_as_ids_that_pytest_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Blanks, dashes and classes work too; errors of fixtures count as failures. Each id runs alone. pytest itself
    prints its progress and the count, but no verdict.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "test_sample.py").write_text(SAMPLE)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    options = ["-p", "no:cacheprovider", *QUIET]
    outcome = run_suite(options, 100, tmp_path / "results.xml")
    printed = capfd.readouterr().out
    assert ".FFFEs" in printed
    assert not {word for word in ("FAILED", "ERROR", "FAILURES", "assert", "Traceback", "test_bad") if word in printed}
    at = "inner/test_sample.py::"
    assert set(outcome.failed) == {
        at + each for each in ("test_bad[x - y]", "test_bad[::z]", "TestInside::test_deep", "test_error")
    }
    assert "Unknown host x" in outcome.failed[at + "test_error"]
    assert list(outcome.skipped) == [at + "test_skip"]
    assert (outcome.passed, outcome.exit_code, outcome.is_whole) == (1, 1, True)
    alone = run_suite([*options, at + "TestInside::test_deep"], 100, tmp_path / "results.xml")
    assert list(alone.failed) == [at + "TestInside::test_deep"]
    assert "def test_deep(self): assert 0" in alone.failed[at + "TestInside::test_deep"], "the traceback, too"


@pytest.mark.soak
def test_a_run_at_its_bound_is_interrupted_and_what_it_had_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_long.py").write_text("def test_long():\n    import threading\n    threading.Event().wait()\n")
    outcome = run_suite(["-p", "no:cacheprovider", "-q"], 3, tmp_path / "results.xml")
    assert (outcome.is_whole, outcome.failed) == (False, {})
    assert not judge(outcome, never, {}, []).is_good


def test_a_file_that_cannot_be_imported_counts_as_failed(tmp_path: Path) -> None:
    results = tmp_path / "results.xml"
    case = '<testcase classname="" name="tests.interop.test_x" time="0"><error message="collection failure">E</error>'
    results.write_text(f"<testsuites><testsuite>{case}</testcase></testsuite></testsuites>")
    outcome = Outcome(2, True)
    read_results(results, outcome)
    assert list(outcome.failed) == ["tests/interop/test_x.py"]
