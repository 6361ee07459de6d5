"""``pocketmq config live | set`` against real brokers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pocketmq.testing import PocketBroker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    with PocketBroker() as running:
        yield running


def test_a_setting_is_changed_and_shown(broker: PocketBroker, run_command: Any) -> None:
    """In both spellings; a change that can delete messages asks, a script says --yes."""
    env = {"POCKETMQ_NAMESRV": broker.namesrv}

    def value(name: str) -> list[str]:
        shown = run_command("config", "live", name, "--json", env=env)
        assert shown.returncode == 0, shown.stderr
        return [row["value"] for row in json.loads(shown.stdout)]

    assert run_command("config", "set", "flush_interval_commit_log=321", env=env).returncode == 0
    assert value("flushIntervalCommitLog") == value("flush_interval_commit_log") == ["321"]
    asks = run_command("config", "set", "fileReservedTime=48", env=env)
    assert asks.returncode == 2
    assert b"nothing changed: there is no terminal to ask" in asks.stderr
    assert run_command("config", "set", "fileReservedTime=48", "--yes", env=env).returncode == 0
    assert value("reservedtime") == ["48"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["listen_port=1"], b"broker.listen_port is read at the start of a broker only"),
        (["flush_interval_commit_logs=1"], b"did you mean"),
        (["flush_interval_commit_log"], b"has no value"),
        (["flush_interval_commit_log=never"], b"is not"),
    ],
)
def test_what_is_refused_says_why(words: list[str], why: bytes, broker: PocketBroker, run_command: Any) -> None:
    done = run_command("config", "set", *words, env={"POCKETMQ_NAMESRV": broker.namesrv})
    assert done.returncode != 0
    assert why in done.stderr, done.stderr
    assert b"Traceback" not in done.stderr


def test_no_such_setting(broker: PocketBroker, run_command: Any) -> None:
    done = run_command("config", "live", "nosuch", env={"POCKETMQ_NAMESRV": broker.namesrv})
    assert b"no setting has that in its name" in done.stderr
