"""Mistakes at the command line: one line each, which says what happened, why, and what to do. The text is exact.

No cause stands in a text twice, and no mistake ends in a traceback.
"""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from pocketmq.testing import PocketBroker
from tests.cli.conftest import RunCommand

pytestmark = pytest.mark.slow

TABLE: Final = Path(__file__).with_name("mistakes.txt")


def mistakes() -> list[tuple[str, int, str]]:
    """Return (command line, exit code, text) of each entry of the table."""
    lines = [line for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    heads = [line.partition(" ") for line in lines[::2]]
    return [(head[2], int(head[0]), text.strip()) for head, text in zip(heads, lines[1::2], strict=True)]


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[str, str]]:
    """Addresses of a broker with a topic ``T``, of its name server, and of one that creates no topics."""
    with PocketBroker() as broker, PocketBroker(broker={"auto_create_topic_enable": False}) as strict:
        yield {"namesrv": broker.namesrv, "broker": broker.address, "strict": strict.namesrv}


def without_times(text: str) -> str:
    """Return a text with its measured times as N, and generated names of files as PATH."""
    text = re.sub(r"\b(waited|cost|after|wait|queue_wait)([ =]\[?)[\d.,]+", r"\1\2N", text)
    return re.sub(r"TIMER_DELAY_MS=(\d+) is \d+ ms", r"TIMER_DELAY_MS=\1 is N ms", text)


@pytest.mark.parametrize(("line", "code", "text"), mistakes(), ids=[line for line, _, _ in mistakes()])
def test_the_text_of_a_mistake(
    line: str, code: int, text: str, brokers: dict[str, str], run_command: RunCommand, tmp_path: Path
) -> None:
    (tmp_path / "broker.conf").write_text("brokerName=broker-a\nlistenPort=tenthousand\n")
    with socket.create_server(("127.0.0.1", 0)) as used:
        places = {**brokers, "dead": "127.0.0.1:1", "used": str(used.getsockname()[1]), "path": str(tmp_path)}
        line, _, stdin = line.partition(" < ")
        *environment, line = line.split(" $ ")
        env = {"POCKETMQ_NAMESRV": brokers["namesrv"], **dict(each.split("=") for each in environment)}
        words = ["" if word == "''" else filled(word, places).replace("~", " ") for word in line.split()]
        create = ("topic", "create", "T", "-q", "4", "--if-not-exists", "--namesrv", brokers["namesrv"])
        assert run_command(*create).returncode == 0
        done = run_command(*words, stdin=stdin.encode(), env=env)
    lines = without_times(done.stderr.decode()).splitlines()
    assert done.returncode == code
    assert len(lines) == 1 or line.startswith("standalone"), "a daemon has logged before"
    assert lines[-1:] == ["error: " + filled(text, places)]


def filled(text: str, places: dict[str, str]) -> str:
    """Return a text with the addresses of this run."""
    for name, value in places.items():
        text = text.replace("{" + name + "}", value)
    return text
