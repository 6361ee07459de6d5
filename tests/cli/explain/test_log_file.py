"""``pocketmq explain --log``: a RocketMQ's logs to causes and cures, from files and from standard input."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pocketmq.cli.app import RootOptions, build_app
from pocketmq.common.errors import ConfigError

LOGS = Path(__file__).parents[2] / "pipeline" / "jobs" / "flow_control"
LOCKS = LOGS / "rocketmq_logs" / "5.3" / "lock-conflict"


def explain(*words: str, stdin: bytes | None = None) -> str:
    """Return what the command prints."""
    answer = CliRunner().invoke(build_app(RootOptions()), ["explain", *words], input=stdin)
    if answer.exception is not None:
        raise answer.exception
    return answer.stdout


def test_a_directory_of_a_broker_and_its_client() -> None:
    """The incident with its evidence by file and line, the cure, the scenario that shows it, and what was read."""
    text = explain("--log", str(LOCKS), "--client-zone", "UTC")
    assert text.startswith("rocketmq-a, 2026-11-23 14:51 to 14:52 UTC")
    assert "An ordered queue waited for a lock that another consumer held" in text
    assert "(14:51:05.000 to 14:51:06.000; broker/filter.log:" in text
    assert "cure: End consumers gracefully" in text
    assert "see it: pocketmq scenario ordered-lock-stuck" in text
    assert "1 incident\n" in text


def test_standard_input_and_json() -> None:
    """``-`` may stand beside files."""
    data = (LOCKS / "broker" / "filter.log").read_bytes()
    document = json.loads(explain("--log", "-", "--json", stdin=data))
    assert [chain["class"] for each in document["incidents"] for chain in each["chains"]] == [5]
    assert document["counts"]["lines"] == len(data.splitlines())
    both = json.loads(
        explain("--log", "-", "--log", str(LOCKS / "client"), "--json", "--client-zone", "UTC", stdin=data)
    )
    assert both["counts"]["lines"] > document["counts"]["lines"]
    assert len(both["incidents"]) == 1


def test_logs_of_pocketmq() -> None:
    """The same command and rules; both logs of a pair are one incident."""
    text = explain("--log", str(LOGS / "logs" / "slave"))
    assert "pair-1, " in text
    assert "The slave's disk failed" in text


def test_texts_that_nobody_knows(tmp_path: Path) -> None:
    """An honest answer, exit code 0; control characters of a log do not reach the terminal."""
    (tmp_path / "x.log").write_bytes(b"nothing of ours\x1b[2J\n" * 3)
    text = explain("--log", str(tmp_path / "x.log"))
    assert "no line of RocketMQ" in text
    assert "\x1b" not in text
    calm = "2026-11-23 22:43:20 INFO main - all is well\n"
    assert "no refusal and no long wait" in explain("--log", "-", stdin=calm.encode())


def test_control_characters_of_a_log_are_shown_as_text(tmp_path: Path) -> None:
    """A hostile log cannot write to the terminal."""
    line = "2026-11-23 22:43:20 WARN main - tryLockBatch, message queue locked by other client. \x1b[2J\x07 Group: G\n"
    (tmp_path / "lock.log").write_text(line)
    assert not set("\x1b\x07") & set(explain("--log", str(tmp_path)))


def test_places_that_are_none(tmp_path: Path) -> None:
    """A file that does not exist and a zone that does not exist are errors."""
    with pytest.raises(ConfigError, match="no logs"):
        explain("--log", str(tmp_path / "none.log"))
    with pytest.raises(ConfigError, match="bad time zone"):
        explain("--log", str(LOCKS), "--zone", "Mars")
