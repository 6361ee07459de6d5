"""What the shell completes: names that the cluster knows, and nothing at all where none answers."""

import socket
from collections.abc import Iterator
from typing import Any, Final

import pytest

from pocketmq.cli import complete
from pocketmq.testing import PocketBroker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    with PocketBroker() as running:
        yield running


PATIENCE_S: Final = complete.PATIENCE_S


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a broker on a slow machine; a user's shell does not."""
    monkeypatch.setattr(complete, "PATIENCE_S", 60)


def completed(run_command: Any, line: str, namesrv: str) -> list[str]:
    """Return what Bash shows for a line whose last word is being typed; nothing may go to standard error."""
    words = line.split(" ")
    env = {
        "_POCKETMQ_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "POCKETMQ_NAMESRV": namesrv,
    }
    done = run_command(*words[1:], env=env)
    assert done.stderr == b""
    return str(done.stdout.decode()).split()


@pytest.fixture
def topics(run_command: Any, broker: PocketBroker) -> None:
    env = {"POCKETMQ_NAMESRV": broker.namesrv}
    for name in ("Orders", "Orders-copy", "Bills"):
        assert run_command("topic", "create", name, "--if-not-exists", "-q", "8", env=env).returncode == 0
    seek = ("group", "seek", "audit", "--create", "--yes", "--topic", "Orders", "--to", "earliest")
    assert run_command(*seek, env=env).returncode == 0


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("pocketmq topic describe Or", ["Orders", "Orders-copy"]),
        ("pocketmq topic describe ", ["Bills", "Orders", "Orders-copy"]),
        ("pocketmq consume B", ["Bills"]),
        ("pocketmq produce B", ["Bills"]),
        ("pocketmq group seek au", ["audit"]),
        ("pocketmq group describe ", ["audit"]),
        ("pocketmq group describe CID_RMQ", ["CID_RMQ_SYS_TRANS"]),
        ("pocketmq group seek audit --topic Bi", ["Bills"]),
        ("pocketmq consume Orders --group a", ["audit"]),
        ("pocketmq lock list -g a", ["audit"]),
        ("pocketmq consume Orders --from ", ["committed", "earliest", "latest"]),
        ("pocketmq scenario pc", ["pc-synchronized", "pcbusy"]),
        ("pocketmq topic desc", ["describe"]),
        ("pocketmq topic describe SCHEDULE_", ["SCHEDULE_TOPIC_XXXX"]),
    ],
)
def test_names_of_the_cluster(run_command: Any, broker: PocketBroker, line: str, names: list[str]) -> None:
    assert completed(run_command, line, broker.namesrv) == names


def test_the_name_server_of_the_line_is_asked(run_command: Any, broker: PocketBroker, topics: None) -> None:
    line = f"pocketmq topic describe --namesrv {broker.namesrv} Bi"
    assert completed(run_command, line, "127.0.0.1:1") == ["Bills"]


def test_no_name_of_a_peer_becomes_a_command() -> None:
    """``a|reboot`` is a legal topic; a name server of RocketMQ's passes on any text."""
    names = [
        "a|reboot",
        "$(x)",
        "`x`",
        "a b",
        "a;b",
        "a\nb",
        "x\x1b[2J",
        "*",
        "\N{SNOWMAN}",
        "",
        "ok-1_2.x",
        "%RETRY%g",
    ]
    assert complete.beginning_with(names, "") == ["%RETRY%g", "ok-1_2.x"]


def test_no_answer_completes_nothing(run_command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens; or one accepts and is silent: then the patience ends the wait."""
    assert completed(run_command, "pocketmq topic describe ", "127.0.0.1:1") == []
    assert completed(run_command, "pocketmq topic describe ", "no address") == []
    assert PATIENCE_S <= 1
    monkeypatch.setattr(complete, "PATIENCE_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert completed(run_command, "pocketmq group describe ", f"127.0.0.1:{silent.getsockname()[1]}") == []
