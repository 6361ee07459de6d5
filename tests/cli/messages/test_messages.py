"""``produce``, ``consume``, ``topic`` and ``group`` against a real broker."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.blocking import PullConsumer
from pocketmq.client.errors import NoRoute
from pocketmq.testing import PocketBroker
from tests.signals import interruptible

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    with PocketBroker() as running:
        yield running


@pytest.fixture
def pocketmq(run_command: Any, broker: PocketBroker) -> Any:
    """Run ``pocketmq …`` against the module's broker."""

    def run(*arguments: str, stdin: bytes = b"", code: int = 0) -> str:
        done = run_command(*arguments, stdin=stdin, env={"POCKETMQ_NAMESRV": broker.namesrv})
        assert done.returncode == code, done.stderr.decode()
        assert b"Traceback" not in done.stderr
        return str((done.stdout if code == 0 else done.stderr).decode("utf-8", "backslashreplace"))

    return run


def test_lines_through_a_pipe_come_back_in_the_order_of_their_key(pocketmq: Any) -> None:
    lines = "".join(f"k{number % 3}:line {number}\n" for number in range(3000))
    pocketmq("produce", "Pipe", "--key-sep", ":", "--sharding-key-from-key", "--tags", "A", stdin=lines.encode())
    out = pocketmq("consume", "Pipe", "--format", "{keys}:{body} {tags} {queue_id}").splitlines()
    assert len(out) == 3000
    for key in range(3):
        mine = [line.split() for line in out if line.startswith(f"k{key}:")]
        assert [f"{words[0]} {words[1]}" for words in mine] == [f"k{key}:line {n}" for n in range(3000) if n % 3 == key]
        assert {tuple(words[2:]) for words in mine} == {("A", mine[0][3])}


def test_files_one_after_the_other_with_a_limit(pocketmq: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n\n2\r\n3")
    (tmp_path / "b").write_bytes(b"4\n5\n6\n")
    out = pocketmq("produce", "Files", "a", "b", "-n", "5", "--json")
    assert json.loads(out)["sent"] == 5
    assert json.loads(out)["statuses"] == {"SEND_OK": 5}
    assert sorted(pocketmq("consume", "Files").split()) == ["1", "2", "3", "4", "5"]


def test_json_lines_and_a_key_from_a_field(pocketmq: Any) -> None:
    line = b'{"id": 17, "name": "x"}\n'
    pocketmq("produce", "Json", "--key-field", "id", "-p", "color=red", stdin=line)
    got = json.loads(pocketmq("consume", "Json", "--json"))
    assert got["keys"] == ["17"]
    assert got["properties"]["color"] == "red"
    assert json.loads(got["body"]) == {"id": 17, "name": "x"}


def test_bytes_that_are_no_text_survive(run_command: Any, broker: PocketBroker) -> None:
    body = bytes(byte for byte in range(256) if byte not in b"\r\n")
    env = {"POCKETMQ_NAMESRV": broker.namesrv}
    assert run_command("produce", "Binary", stdin=body, env=env).returncode == 0
    assert run_command("consume", "Binary", "--separator", "", env=env).stdout == body


def test_an_argument_that_is_no_text_is_sent_as_it_is(run_command: Any, broker: PocketBroker) -> None:
    env = {"POCKETMQ_NAMESRV": broker.namesrv}
    done = run_command("produce", "Argument", "-m", os.fsdecode(b"\xff\xfe"), "--rate", "inf", env=env)
    assert done.returncode == 0, done.stderr
    assert run_command("consume", "Argument", env=env).stdout == b"\xff\xfe\n"


def test_closed_standard_files_and_a_full_disk(run_process: Any, broker: PocketBroker) -> None:
    """``<&- >&-``: uvloop would abort the process. A full disk gives one line, not a traceback."""

    def shell(script: str) -> Any:
        command = ["/bin/sh", "-c", f'"$0" -m pocketmq.cli.main {script}', sys.executable]
        return run_process(command=command, env={"POCKETMQ_NAMESRV": broker.namesrv})

    assert shell("topic list --all >&-").returncode == 0
    assert shell("topic list --all <&- >&- 2>&-").returncode == 0
    assert shell("produce Closed -m x <&-").returncode == 0
    done = shell("topic list --all >/dev/full")
    assert (done.returncode, done.stderr) == (1, b"error: the command failed: No space left on device\n")


def test_from_positions_and_tags(pocketmq: Any) -> None:
    pocketmq("produce", "Where", "-m", "old", "--tags", "A")
    pocketmq("produce", "Where", "-m", "new", "--tags", "B")
    assert pocketmq("consume", "Where", "--from", "latest") == ""
    assert sorted(pocketmq("consume", "Where", "--from", "1h").split()) == ["new", "old"]
    assert pocketmq("consume", "Where", "--tags", "B") == "new\n"
    assert pocketmq("consume", "Where", "--tags", "C") == ""


def test_delayed_messages_come_later(pocketmq: Any) -> None:
    """By delay, by time and by level; the lines of one call are requests of their own."""
    pocketmq("produce", "Later", "-m", "now")
    pocketmq("produce", "Later", "--delay", "1d", "-m", "tomorrow")
    pocketmq("produce", "Later", "--delay-level", "18", "-m", "in two hours")
    pocketmq("produce", "Later", "--deliver-at", "2001-01-01", "-m", "at once")
    assert sorted(pocketmq("consume", "Later", "--from", "earliest").split("\n")) == ["", "at once", "now"]
    pocketmq("produce", "Later", "--delay", "300ms", stdin=b"1\n2\n")
    out = pocketmq("consume", "Later", "--from", "earliest", "-n", "4", "--follow")
    assert sorted(out.split("\n")) == ["", "1", "2", "at once", "now"]


def test_from_a_time_with_no_message_since_gives_none(pocketmq: Any) -> None:
    """A broker chooses the message nearest to the time; the command skips older ones."""
    pocketmq("produce", "Since", stdin=b"old\n")
    assert pocketmq("consume", "Since", "--from", "2999-01-01") == ""
    assert pocketmq("consume", "Since", "--from", "1h") == "old\n"


def test_a_group_goes_on_where_it_committed_and_can_be_moved(pocketmq: Any) -> None:
    pocketmq("topic", "create", "Group", "--queues", "1")
    pocketmq("produce", "Group", stdin=b"1\n2\n3\n")
    assert pocketmq("consume", "Group", "--group", "readers", "-n", "2") == "1\n2\n"
    described = json.loads(pocketmq("group", "describe", "readers", "--json"))
    assert (described["lag"], described["queues"][0]["consumer_offset"]) == (1, 2)
    assert "readers\t0\t1\tGroup" in pocketmq("group", "list").splitlines()
    assert pocketmq("consume", "Group", "--group", "readers") == "3\n"
    assert pocketmq("consume", "Group", "--group", "readers") == ""
    assert pocketmq("group", "seek", "readers", "--yes", "--topic", "Group", "--to", "earliest").endswith(
        "Group\tpocket\t0\t3\t0\n"
    )
    assert pocketmq("consume", "Group", "--group", "readers") == "1\n2\n3\n"


def test_a_topic_is_created_described_listed_and_deleted(pocketmq: Any) -> None:
    pocketmq("topic", "create", "Life", "--queues", "3", "--perm", "R")
    assert "Life\t3\tR--\t0" in pocketmq("topic", "list").splitlines()
    rows = pocketmq("topic", "describe", "Life").splitlines()
    assert rows[0] == "broker\tqueue_id\tperm\tmin_offset\tmax_offset\tmessages\tlast_message"
    assert rows[1:] == [f"pocket\t{queue}\tR--\t0\t0\t0\t" for queue in range(3)]
    assert json.loads(pocketmq("topic", "describe", "Life", "--json"))["messages"] == 0
    assert "scripts say --yes" in pocketmq("topic", "delete", "Life", code=2)
    assert pocketmq("topic", "delete", "Life", "--yes") == "deleted Life: 0 messages\n"
    assert "Life" not in pocketmq("topic", "list")
    assert "Life" in pocketmq("topic", "describe", "Life", code=1)
    assert "TBW102" not in pocketmq("topic", "list")
    assert "TBW102" in pocketmq("topic", "list", "--all")


def test_a_topic_that_exists_is_not_changed_by_accident(pocketmq: Any, run_command: Any, broker: PocketBroker) -> None:
    """Other settings are refused, and both are shown; --if-not-exists leaves them; --update changes the named ones."""

    def create(*arguments: str) -> tuple[int, str, str]:
        done = run_command("topic", "create", "Kept", *arguments, env={"POCKETMQ_NAMESRV": broker.namesrv})
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    assert create("-q", "4") == (0, "created Kept: 4 queues on pocket\n", "")
    lines = b"".join(b"k%d:%d\n" % (number, number) for number in range(100))
    pocketmq("produce", "Kept", "--key-sep", ":", "--sharding-key-from-key", stdin=lines)
    assert create() == (0, "Kept exists already: 4 queues on pocket\n", "")
    assert create("-q", "4", "--perm", "wr", "--no-order") == (0, "Kept exists already: 4 queues on pocket\n", "")
    code, out, errors = create("-q", "1", "--perm", "R")
    assert (code, out) == (1, "")
    assert "4 queues, permission RW on pocket; asked for: 1 queue, permission R (" in errors
    assert "--update" in errors
    assert "--if-not-exists" in errors
    left = "Kept exists already and differs: 4 queues, permission RW on pocket; asked for: 1 queue (left as it is)\n"
    assert create("-q", "1", "--if-not-exists") == (0, "", left)
    assert len(pocketmq("consume", "Kept").splitlines()) == 100

    code, out, errors = create("-q", "1", "--update")
    assert (code, out) == (1, "")
    assert "messages in 3 queues, id 1 and above (" in errors
    assert "--force" in errors
    assert len(pocketmq("consume", "Kept").splitlines()) == 100
    told = "changed Kept on pocket: 4 queues, permission RW -> 8 queues, permission RW\n"
    assert create("-q", "8", "--update") == (0, told, "")
    told = "changed Kept on pocket: 8 queues, permission RW -> 4 queues, permission RW, ordered\n"
    assert create("-q", "4", "--order", "--update") == (0, told, "")  # the removed queues are empty
    code, out, errors = create("-q", "1", "--update", "--force")
    assert (code, out) == (
        0,
        "changed Kept on pocket: 4 queues, permission RW, ordered -> 1 queue, permission RW, ordered\n",
    )
    hidden = 100 - len(pocketmq("consume", "Kept").splitlines())
    assert errors == f"hidden, not deleted: pocket holds {hidden} messages in 3 queues, id 1 and above\n"
    create("-q", "4", "--update")
    assert len(pocketmq("consume", "Kept").splitlines()) == 100


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("produce", "bad topic!", "-m", "x"), 1, "illegal characters"),
        (("produce", "T", "none.txt"), 1, "none.txt: No such file"),
        (("produce", "T", "-m", "x", "--key", "a", "--key-sep", ":"), 2, "exclude each other"),
        (("produce", "T", "-m", "x", "--delay", "1s", "--delay-level", "1"), 2, "exclude each other"),
        (("produce", "T", "-m", "x", "--delay", "soon"), 2, "bad --delay"),
        (("produce", "T", "-m", "x", "--deliver-at", "soon"), 2, "bad time"),
        (("produce", "T", "-m", "x", "--delay", "4d"), 1, "max delay 259200000ms"),
        (("consume", "T", "--from", "9" * 30), 2, "bad position"),
        (("consume", "T", "--format", "{bdy}"), 2, "no field {bdy}"),
        (("consume", "T", "--from", "yesterday"), 2, "bad position"),
        (("consume", "T", "--from", "committed"), 2, "needs a group"),
        (("consume", "NoSuchTopic"), 1, "NoSuchTopic"),
        (("consume", "T", "--namesrv", "127.0.0.1:1"), 4, "127.0.0.1:1"),
        (("consume", "T", "--namesrv", "nonsense"), 2, "nonsense"),
        (("topic", "create", "T", "--perm", "Q"), 2, "bad permission"),
        (("topic", "create", "T", "--update", "--if-not-exists"), 2, "exclude each other"),
        (("topic", "create", "T", "--force"), 2, "--force without --update"),
        (("group", "describe", "no_such_group"), 1, "no such group"),
        (("group", "seek", "g", "-t", "T", "--to", "committed"), 2, "changes nothing"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(pocketmq: Any, arguments: tuple[str, ...], code: int, told: str) -> None:
    text = pocketmq(*arguments, code=code)
    assert text.startswith("error: ")
    assert told in text


def test_debug_shows_where_an_error_came_from(run_command: Any) -> None:
    done = run_command("--debug", "topic", "list", "--namesrv", "127.0.0.1:1")
    assert done.returncode == 1
    assert b"Traceback" in done.stderr


def test_follow_writes_at_once_and_ctrl_c_commits(pocketmq: Any, broker: PocketBroker, tmp_path: Path) -> None:
    pocketmq("topic", "create", "Follow", "--queues", "1")
    pocketmq("produce", "Follow", "-m", "first")
    command = [sys.executable, "-m", "pocketmq.cli.main", "consume", "Follow", "-f", "--group", "tail"]
    environment = {**os.environ, "POCKETMQ_NAMESRV": broker.namesrv}
    with interruptible():
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"first\n"
        pocketmq("produce", "Follow", "-m", "second")
        assert process.stdout.readline() == b"second\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b""
    assert pocketmq("consume", "Follow", "--group", "tail") == ""


def test_ctrl_c_says_how_many_are_stored(broker: PocketBroker) -> None:
    """An interrupted produce exits with 130 and reports the stored messages."""
    command = [sys.executable, "-m", "pocketmq.cli.main", "produce", "Broken", "--rate", "200"]
    environment = {**os.environ, "POCKETMQ_NAMESRV": broker.namesrv}
    with interruptible():
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    with process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"line\n" * 2000)
        process.stdin.flush()
        with PullConsumer(group="watch", namesrv=broker.namesrv) as consumer:
            while _count(consumer, "Broken") < 100:  # more batches than may be in flight
                pass
        process.send_signal(signal.SIGINT)
        told = process.stderr.read().decode()
    assert process.returncode == 130
    stored = int(told.split("stopped: ")[1].split()[0].replace(",", ""))
    with PullConsumer(group="watch", namesrv=broker.namesrv) as consumer:
        assert 0 < stored <= _count(consumer, "Broken") < 2000


def _count(consumer: PullConsumer, topic: str) -> int:
    """Return how many messages a topic has; 0 while it does not exist."""
    try:
        return sum(1 for _ in consumer.stream(topic, start="earliest", stop_at_end=True))
    except NoRoute:
        return 0


def test_a_rate_is_kept(pocketmq: Any) -> None:
    """21 messages at 100/s take at least 0.15 s by the process's own clock."""
    assert (
        json.loads(pocketmq("produce", "Rate", "-m", "x", "-n", "21", "--rate", "100", "--json"))["elapsed_s"] >= 0.15
    )


def test_consume_into_a_pipe_that_closes_early(broker: PocketBroker, pocketmq: Any) -> None:
    pocketmq("produce", "Head", stdin=b"".join(b"%0100d\n" % number for number in range(20_000)))
    pipeline = f"{sys.executable} -m pocketmq.cli.main consume Head | head -n 1; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "POCKETMQ_NAMESRV": broker.namesrv}
    done = subprocess.run(["bash", "-c", pipeline], capture_output=True, timeout=100, env=environment)
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""
    assert done.returncode == 0
