"""``pocketmq dlq`` against a real broker."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli.main import main
from pocketmq.client import ClientInstance, Producer, PullConsumer
from pocketmq.client.blocking import Producer as BlockingProducer
from pocketmq.client.push.send_back import SendBack
from pocketmq.common.message import Message
from pocketmq.testing.broker import PocketBroker
from tests.client.conftest import until_known


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    with PocketBroker() as running:
        yield running


@pytest.fixture
def dlq(broker: PocketBroker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Run the command in this process, expect ``code``; return standard output, or standard error of a failure."""
    monkeypatch.setenv("POCKETMQ_NAMESRV", broker.namesrv)
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115

    def run(*arguments: str, code: int = 0, command: str = "dlq") -> str:
        monkeypatch.setattr(sys, "argv", ["pocketmq", command, *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, errors = capfd.readouterr()
        assert (ended.value.code or 0) == code, out + errors
        return errors if code else out

    yield run
    sys.stdin.close()


def bury(broker: PocketBroker, group: str, bodies: list[bytes], origin: str) -> list[str]:
    """Let a group give up messages of ``origin``, as its consumers do; return their unique ids."""

    async def give_up() -> list[str]:
        instance = ClientInstance(broker.namesrv)
        async with Producer("p", instance=instance) as producer:
            for number, body in enumerate(bodies):
                await producer.send(Message(origin, body, tags="A", keys=[f"k{number}"], sharding_key="s"))
            await until_known(instance, origin)
            async with PullConsumer("audit", instance=instance) as consumer:
                stream = consumer.stream(origin, start="earliest", stop_at_end=True)
                messages = [message async for message in stream]
            policy = SendBack(instance, group)
            for number, message in enumerate(messages):
                assert await policy.failed([message], f"ValueError('no {number}')", -1) == ()
            return [message.msg_id for message in messages]

    return asyncio.run(give_up())


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
def test_list_and_show_say_what_died_and_why(broker: PocketBroker, dlq: Any) -> None:
    """Groups with counts and times; messages with origin, attempts and the last error; tables and JSON."""
    ids = bury(broker, "listed", [b"a", b"b", b"c"], "orders")
    (group,) = [each for each in json.loads(dlq("list", "--json")) if each["group"] == "listed"]
    assert group["count"] == 3
    assert "20" < group["oldest"] <= group["newest"] < "21"
    assert "listed\t3\t20" in dlq("list")
    shown = lines(dlq("show", "listed", "--json"))
    assert [each["msg_id"] for each in shown] == ids
    assert [each["last_error"] for each in shown] == [f"ValueError('no {number}')" for number in range(3)]
    assert {(each["origin_topic"], each["resent"], each["last_resent"]) for each in shown} == {("orders", 0, None)}
    assert [each["body"] for each in shown] == ["a", "b", "c"]
    assert len(dlq("show", "listed", "-n", "2").splitlines()) == 3
    (one,) = lines(dlq("show", "listed", "--id", shown[1]["offset_msg_id"], "--json"))
    assert one["msg_id"] == ids[1]
    assert "no dead letter X" in dlq("show", "listed", "--id", "X", code=1)
    assert "nobody" in dlq("show", "nobody", code=1)


@pytest.mark.slow
def test_resend_removes_nothing_and_remembers(broker: PocketBroker, dlq: Any) -> None:
    """A dry run sends no message; without --yes a pipe gets no question; messages sent before are sent again only on
    request; the copy is the message with a mark.
    """
    ids = bury(broker, "resent", [b"a", b"b", b"c"], "orders2")
    result = json.loads(dlq("resend", "resent", "--all", "--dry-run", "--json"))
    assert result == {"selected": 3, "sent_before": 0, "unknown": 0, "would_send": 3}
    assert "--yes" in dlq("resend", "resent", "--all", code=2)
    assert json.loads(dlq("resend", "resent", "-n", "1", "--yes", "--json"))["sent"] == 1
    result = json.loads(dlq("resend", "resent", "-n", "1", "--yes", "--json"))
    assert result == {"selected": 2, "sent_before": 1, "unknown": 0, "sent": 1, "failed": 0}
    result = json.loads(dlq("resend", "resent", "--all", "-y", "--json"))
    assert result == {"selected": 3, "sent_before": 2, "unknown": 0, "sent": 1, "failed": 0}
    again = json.loads(dlq("resend", "resent", "--id", ids[2], "--again", "-y", "--json"))
    assert (again["sent"], again["sent_before"]) == (1, 1)
    shown = lines(dlq("show", "resent", "--json"))
    assert [each["resent"] for each in shown] == [1, 1, 2]
    copies = lines(dlq("%RETRY%resent", "--json", command="consume"))
    assert sorted(each["msg_id"] for each in copies) == sorted([*ids, ids[2]])
    for copy in copies:
        assert (copy["tags"], copy["reconsume_times"], copy["properties"]["RETRY_TOPIC"]) == ("A", 0, "orders2")
        assert "POCKETMQ_LAST_ERROR" not in copy["properties"]
        origin = next(each for each in shown if each["msg_id"] == copy["msg_id"])
        assert copy["properties"]["POCKETMQ_RESENT_FROM"] == origin["offset_msg_id"]


@pytest.mark.slow
def test_resend_to_the_origin(broker: PocketBroker, dlq: Any) -> None:
    """Its first topic gets it as a new message; one without a known origin fails alone, with exit code 1."""
    (known,) = bury(broker, "origin", [b"a"], "FirstTopic")
    with BlockingProducer(group="p", namesrv=broker.namesrv) as producer:
        producer.send(Message("%DLQ%origin", b"b"))
    told = dlq("resend", "origin", "--all", "--to", "origin", "-y", code=1)
    assert "does not say where it comes from" in told
    first, copy = lines(dlq("FirstTopic", "--json", command="consume"))
    assert (first["msg_id"], copy["msg_id"], copy["body"]) == (known, known, "a")
    assert "RETRY_TOPIC" not in copy["properties"]


@pytest.mark.slow
def test_export_as_lines_and_columns(broker: PocketBroker, dlq: Any, tmp_path: Path) -> None:
    """Every dead letter once, bytes unchanged; an existing file stays, an unfinished one is removed."""
    import pyarrow.parquet

    bodies = [b"text", bytes(range(256)), b"\xff"]
    ids = bury(broker, "exported", bodies, "orders3")
    dlq("export", "exported", "-o", str(tmp_path / "dead.jsonl"))
    rows = lines((tmp_path / "dead.jsonl").read_text())
    assert [row["msg_id"] for row in rows] == ids
    assert lines(dlq("export", "exported", "-o", "-")) == rows
    dlq("export", "exported", "-o", str(tmp_path / "dead.parquet"))
    table = pyarrow.parquet.read_table(tmp_path / "dead.parquet").to_pylist()
    assert [(row["msg_id"], row["body"], row["origin_topic"]) for row in table] == [
        (msg_id, body, "orders3") for msg_id, body in zip(ids, bodies, strict=True)
    ]
    assert dict(table[0]["properties"])["POCKETMQ_LAST_ERROR"] == "ValueError('no 0')"
    assert "exists" in dlq("export", "exported", "-o", str(tmp_path / "dead.jsonl"), code=1)
    dlq("export", "nobody", "-o", str(tmp_path / "none.jsonl"), code=1)
    assert not (tmp_path / "none.jsonl").exists()
    (row,) = lines(dlq("export", "exported", "-o", "-", "--id", ids[1]))
    assert row["msg_id"] == ids[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["resend", "g"],
        ["resend", "g", "--all", "--limit", "3"],
        ["resend", "g", "--all", "--to", "elsewhere"],
        ["export", "g", "-o", "-", "--format", "parquet"],
        ["export", "g", "-o", "x", "--format", "csv"],
    ],
)
def test_what_cannot_be_meant_is_refused(dlq: Any, arguments: list[str]) -> None:
    """Exit code 2, with the correct form."""
    told = dlq(*arguments, code=2)
    assert told.startswith("error: ")
    assert told.endswith(")\n")


@pytest.mark.slow
def test_bodies_are_shown_and_purge_removes_them(broker: PocketBroker, dlq: Any) -> None:
    """No text is shown as base64, a long body by its beginning; without ``--yes`` a script removes nothing."""
    bury(broker, "purged", [b"\xff\x00", b"x" * 500 + b"\x1b[31m", b"odd\x1b[31m\n"], "odd-bodies")
    shown = lines(dlq("show", "purged", "--json"))
    assert [each.get("body_base64") or each["body"] for each in shown] == [
        "/wA=",
        "x" * 500 + "\x1b[31m",
        "odd\x1b[31m\n",
    ]
    cells = [line.split("\t")[-1] for line in dlq("show", "purged").splitlines()]
    assert cells == ["body", "/wA=", "x" * 200 + "…", "odd\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}"]
    assert dlq("purge", "purged", code=2) == (
        "error: dead letters of purged kept: there is no terminal to ask for confirmation (scripts say --yes)\n"
    )
    assert dlq("purge", "purged", "--yes") == "removed 3 dead letters of purged\n"
    assert dlq("show", "purged", "--json") == ""
    (group,) = [each for each in json.loads(dlq("list", "--json")) if each["group"] == "purged"]
    assert group == {"group": "purged", "count": 0, "oldest": None, "newest": None}
    bury(broker, "purged", [b"again"], "odd-bodies-2")
    assert [each["body"] for each in lines(dlq("show", "purged", "--json"))] == ["again"]
    assert "no dead letters of nobody: it has never" in dlq("purge", "nobody", "--yes", code=1)
