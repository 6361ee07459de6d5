"""``pocketmq group seek | delete``, ``topic alter | purge`` against a real broker."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pocketmq.client.blocking import PullConsumer
from pocketmq.testing import PocketBroker

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


def offsets(pocketmq: Any, group: str) -> dict[int, int]:
    """Return queue id → committed offset."""
    rows = json.loads(pocketmq("group", "describe", group, "--json"))["queues"]
    return {row["queue_id"]: row["consumer_offset"] for row in rows}


@pytest.fixture
def topic(pocketmq: Any, request: pytest.FixtureRequest) -> str:
    """Create a topic with six messages in two queues, which the group of the same name has read."""
    name = str(request.node.name[5:60])
    pocketmq("topic", "create", name, "--queues", "2")
    pocketmq("produce", name, "--key-sep", ":", "--sharding-key-from-key", stdin=b"1:a\n2:b\n3:c\n4:d\n5:e\n6:f\n")
    pocketmq("consume", name, "--group", name)
    return name


def test_seek_sets_one_queue_to_an_offset(pocketmq: Any, topic: str) -> None:
    """Before and after are shown; a dry run changes nothing; other queues stay."""
    before = offsets(pocketmq, topic)
    full = max(before, key=lambda queue_id: before[queue_id])
    words = ("group", "seek", topic, "--topic", topic, "--offset", "1", "--queue", str(full))
    shown = json.loads(pocketmq(*words, "--dry-run", "--json"))
    assert [(row["queue_id"], row["before"], row["offset"]) for row in shown] == [(full, before[full], 1)]
    assert offsets(pocketmq, topic) == before
    pocketmq(*words, "--yes")
    assert offsets(pocketmq, topic) == before | {full: 1}


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (("--offset", "0"), 2, "scripts say --yes"),
        (("--offset", "99", "--yes"), 1, "has offsets from 0 to"),
        (("--offset", "1", "--queue", "7", "--yes"), 1, "id 7"),
        (("--to", "latest", "--broker", "other", "--yes"), 1, "none on other"),
        (("--to", "latest", "--offset", "1", "--yes"), 2, "give one of them"),
        (("--yes",), 2, "give one of them"),
    ],
)
def test_seek_refuses(pocketmq: Any, options: tuple[str, ...], code: int, text: str) -> None:
    """What cannot be meant changes nothing."""
    pocketmq("topic", "create", "Refused", "--queues", "2", "--if-not-exists")
    pocketmq("group", "seek", "refused", "--create", "--yes", "--topic", "Refused", "--to", "earliest")
    assert text in pocketmq("group", "seek", "refused", "--topic", "Refused", *options, code=code)
    assert offsets(pocketmq, "refused") == {0: 0, 1: 0}


def test_a_mistyped_group_is_not_created(pocketmq: Any, topic: str) -> None:
    """``seek`` of an unknown group fails unless ``--create`` says so."""
    words = ("group", "seek", f"{topic}-typo", "--topic", topic, "--to", "earliest", "--yes")
    assert "--create" in pocketmq(*words, code=1)
    assert f"{topic}-typo" not in pocketmq("group", "list")
    pocketmq(*words, "--create")
    assert f"{topic}-typo\t0\t6\t{topic}" in pocketmq("group", "list").splitlines()


def test_a_group_is_deleted_with_its_offsets(pocketmq: Any, topic: str) -> None:
    """And its retry topic: groups that come and go would fill the table of topics. Not without ``--yes`` in a script;
    an unknown group is an error."""
    retries = f"%RETRY%{topic}"
    assert json.loads(pocketmq("topic", "describe", retries, "--json"))["topic"] == retries
    assert "scripts say --yes" in pocketmq("group", "delete", topic, code=2)
    assert pocketmq("group", "delete", topic, "--yes") == f"deleted {topic}\n"
    assert topic not in [line.split("\t")[0] for line in pocketmq("group", "list").splitlines()]
    assert "no such group" in pocketmq("group", "delete", topic, "--yes", code=1)
    assert retries in pocketmq("topic", "describe", retries, code=1)


def test_nothing_is_moved_emptied_or_deleted_under_a_connected_consumer(
    pocketmq: Any, broker: PocketBroker, topic: str
) -> None:
    """It would overwrite the offsets, skip messages, or create the group again; ``--force`` does it."""
    with PullConsumer(topic, broker.namesrv) as consumer:
        consumer.poll(topic, max_messages=1, timeout_ms=0)
        assert "are connected" in pocketmq("group", "delete", topic, "--yes", code=1)
        assert "are connected" in pocketmq("topic", "purge", topic, "--yes", code=1)
        assert "are connected" in pocketmq("group", "seek", topic, "--topic", topic, "--to", "latest", "--yes", code=1)
        pocketmq("group", "delete", topic, "--yes", "--force")


def test_a_group_without_offsets_has_no_known_lag(pocketmq: Any, broker: PocketBroker, topic: str) -> None:
    """0 would say that it has read everything; the command line's own group is not shown."""
    with PullConsumer("only-connected", broker.namesrv) as consumer:
        consumer.poll(topic, max_messages=1, timeout_ms=0)
        rows = [line.split("\t") for line in pocketmq("group", "list").splitlines()]
        assert ["only-connected", "1", "-"] in [row[:3] for row in rows]
        assert "pocketmq-cli" not in {row[0] for row in rows}
        listed = {row["group"]: row["lag"] for row in json.loads(pocketmq("group", "list", "--json"))}
        assert listed["only-connected"] is None


def test_a_topic_is_emptied_with_its_settings_kept(pocketmq: Any, topic: str) -> None:
    """The queues start at 0 again, and so do the groups."""
    pocketmq("topic", "alter", topic, "--order")
    assert "scripts say --yes" in pocketmq("topic", "purge", topic, code=2)
    assert pocketmq("topic", "purge", topic, "--yes") == f"emptied {topic}: 6 messages removed\n"
    assert json.loads(pocketmq("topic", "describe", topic, "--json"))["messages"] == 0
    assert "2 queues, ordered" in pocketmq("topic", "create", topic)
    pocketmq("produce", topic, "-m", "new")
    assert pocketmq("consume", topic, "--group", topic) == "new\n"


def test_alter_shows_before_and_after_and_hides_nothing(pocketmq: Any, topic: str) -> None:
    """It changes what exists, and creates nothing."""
    assert pocketmq("topic", "alter", topic, "-q", "4") == (
        f"changed {topic} on pocket: 2 queues, permission RW -> 4 queues, permission RW\n"
    )
    assert "could not be read any more" in pocketmq("topic", "alter", topic, "-q", "1", code=1)
    assert "no topic" in pocketmq("topic", "alter", f"{topic}-not", "-q", "1", code=1)
    assert "nothing to change" in pocketmq("topic", "alter", topic, code=2)


def test_what_was_changed_is_said_in_json_as_well(pocketmq: Any) -> None:
    """One line for each broker of a topic; standard output has nothing else."""
    settings = {"read_queues": 2, "write_queues": 2, "perm": "RW-", "order": False}
    line = {"topic": "InJson", "broker": "pocket", "did": "created", "settings": settings}
    assert json.loads(pocketmq("topic", "create", "InJson", "-q", "2", "--json")) == line
    line = {**line, "did": "unchanged"}
    assert json.loads(pocketmq("topic", "create", "InJson", "--json")) == line
    assert json.loads(pocketmq("topic", "create", "InJson", "-q", "4", "--if-not-exists", "--json")) == line
    changed = {**line, "did": "changed", "settings": {**settings, "order": True}, "before": settings}
    assert json.loads(pocketmq("topic", "alter", "InJson", "--order", "--json")) == changed
    pocketmq("produce", "InJson", "-m", "x")
    pocketmq("consume", "InJson", "--group", "in-json")
    group = {"group": "in-json", "did": "deleted", "lag": 0, "offsets_kept": False}
    assert json.loads(pocketmq("group", "delete", "in-json", "--yes", "--json")) == group
    assert json.loads(pocketmq("topic", "purge", "InJson", "--yes", "--json")) == {
        "topic": "InJson",
        "did": "emptied",
        "messages": 1,
    }
    assert json.loads(pocketmq("topic", "delete", "InJson", "--yes", "--json"))["did"] == "deleted"
