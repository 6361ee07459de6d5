"""``pocketmq consume``: which messages, how long, and a topic that does not exist yet."""

import asyncio
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.admin.admin import Admin
from pocketmq.client.blocking import Producer
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.common.message import Message
from pocketmq.testing import PocketBroker
from tests.cli.conftest import COMMAND, environment
from tests.signals import interruptible

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    with PocketBroker() as running:
        yield running


@pytest.fixture
def pocketmq(run_command: Any, broker: PocketBroker) -> Any:
    """Run ``pocketmq …`` against the module's broker; return its output, of standard error if it fails."""

    def run(*arguments: str, stdin: bytes = b"", code: int = 0) -> str:
        done = run_command(*arguments, stdin=stdin, env={"POCKETMQ_NAMESRV": broker.namesrv})
        assert done.returncode == code, done.stderr.decode()
        return str((done.stdout if code == 0 else done.stderr).decode())

    return run


def by_body(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Choose the queue that the body names."""
    return queues[int(message.body[:1])]


@pytest.fixture(scope="module")
def topic(broker: PocketBroker) -> str:
    """A topic with ten messages in each of two queues: ``0:0`` to ``1:9``, with the price as a property."""

    async def create() -> None:
        async with Admin(broker.namesrv) as admin:
            await admin.create_topic("Chosen", read_queues=2, write_queues=2)

    asyncio.run(create())
    with Producer("writer", broker.namesrv) as producer:
        for queue_id in range(2):
            for price in range(10):
                message = Message("Chosen", f"{queue_id}:{price}".encode(), properties={"price": str(price)})
                producer.send(message, selector=by_body)
    return "Chosen"


def test_one_queue_from_an_offset(pocketmq: Any, topic: str) -> None:
    assert pocketmq("consume", topic, "--queue", "1", "--offset", "7") == "1:7\n1:8\n1:9\n"
    assert sorted(pocketmq("consume", topic, "--queue", "0").split()) == [f"0:{price}" for price in range(10)]
    assert pocketmq("consume", topic, "--broker", "other", code=1) == (
        "error: no such queue of Chosen: none on other (pocketmq topic describe Chosen)\n"
    )
    assert pocketmq("consume", topic, "--queue", "7", code=1) == (
        "error: no such queue of Chosen: id 7 (pocketmq topic describe Chosen)\n"
    )
    assert "--offset needs one queue" in pocketmq("consume", topic, "--offset", "7", code=2)


def test_a_filter_on_properties(pocketmq: Any, topic: str) -> None:
    out = pocketmq("consume", topic, "--sql", "price BETWEEN 2 AND 3")
    assert sorted(out.split()) == ["0:2", "0:3", "1:2", "1:3"]
    assert "exclude each other" in pocketmq("consume", topic, "--sql", "price > 2", "--tags", "A", code=2)
    assert "column 8" in pocketmq("consume", topic, "--sql", "price >", code=1)


def test_a_timeout_ends_a_wait_that_nothing_ends(pocketmq: Any, topic: str) -> None:
    """Exit code 1 where fewer messages came than were asked for; those that came are written and committed."""
    text = pocketmq("consume", topic, "-n", "21", "--timeout", "300ms", "--group", "patient", code=1)
    found = re.fullmatch(r"error: (\d+) of 21 messages came: waited 300ms \(raise --timeout\)\n", text)
    assert found, text
    assert len(pocketmq("consume", topic, "--group", "patient").split()) == 20 - int(found[1])
    assert len(pocketmq("consume", topic, "-n", "20", "--timeout", "1h").split()) == 20
    assert pocketmq("consume", "NotThere", "-n", "1", "--timeout", "300ms", code=1).endswith(
        "error: 0 of 1 messages came: waited 300ms (raise --timeout)\n"
    )


@pytest.mark.parametrize("position", ["earliest", "latest"])
def test_following_a_topic_that_does_not_exist_waits_for_it(
    broker: PocketBroker, tmp_path: Path, position: str
) -> None:
    """All that is sent after the command began is written, also from its end on."""
    name = f"NotYet-{position}"
    command = [*COMMAND, "consume", name, "-f", "--from", position, "-n", "1"]
    env = environment({"POCKETMQ_NAMESRV": broker.namesrv})
    with interruptible():
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=tmp_path)
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(f"waiting for topic {name}: ".encode())
        with Producer("writer", broker.namesrv) as producer:
            producer.send(Message(name, b"first"))
        out, _ = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, b"first\n")
    finally:
        process.kill()
        process.communicate()


def test_former_names_of_options_still_work_and_no_help_has_them(pocketmq: Any, topic: str, tmp_path: Path) -> None:
    """For one more version; the rest of the language of options is checked over all commands."""
    pocketmq("produce", topic, "-m", "x", "--timeout-ms", "20000", "--key", "k")
    assert pocketmq("message", "query", topic, "--key", "k", "--begin", "1h", "--max", "3", "--end", "1h", code=1)
    assert pocketmq("message", "query", topic, "--key", "k", "--begin", "1h", "--max", "3")
    assert pocketmq("transaction", "list", "--max", "3", "--json") == "[]\n"
    for command, former in (("produce", "--timeout-ms"), ("message query", "--begin"), ("transaction list", "--max")):
        assert former not in pocketmq(*command.split(), "--help")
