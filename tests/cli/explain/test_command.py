"""``pocketmq explain``: what it prints, its exit codes, and that no pasted byte reaches the terminal raw."""

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pocketmq.cli.explain.report import json_of, text_lines, unknown_lines
from pocketmq.common.known_texts.explanation import explain
from pocketmq.common.known_texts.search import KNOWN_ROWS, index, nearest
from pocketmq.common.refusal_row import Row
from pocketmq.common.refusals import REFUSALS
from tests.cli.conftest import RunCommand
from tests.cli.test_language import EFFECTS

TIMEOUT = (
    "MQBrokerException: CODE: 2  DESC: [TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
    "period in queue: 235ms, size of queue: 875"
)


def test_the_first_thing_a_reader_pastes(run_command: RunCommand) -> None:
    """Meaning, side, stored, retries, cures with their price, scenario and page."""
    done = run_command("explain", TIMEOUT)
    assert (done.returncode, done.stderr) == (0, b"")
    out = done.stdout.decode()
    assert out.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy, ")
    for line in (
        r"  means       Requests waited too long in their queue\. .*",
        r"  code        2 SYSTEM_BUSY",
        r"  written by  the broker, in its answer \(RocketMQ: BrokerFastFailure\)",
        r"  stored      no",
        r"  sent again  RocketMQ 4\.9 to 5\.2: no, .*addRetryResponseCode\(2\).*",
        r"  cure        More brokers, .*",
        r"  price       .*",
        r"  no cure     raising wait_time_mills_in_send_queue: .*",
        r"  see it      pocketmq scenario timeout-clean-queue",
        r"  see it      pocketmq scenario retry-codes",
        r"  more        docs/sending\.md#queue_timeout",
    ):
        assert re.search(f"^{line}$", out, re.MULTILINE), line


def test_words_need_no_quotes_and_input_may_be_piped(run_command: RunCommand) -> None:
    quoted = run_command("explain", "sendDefaultImpl call timeout").stdout
    assert run_command("explain", "sendDefaultImpl", "call", "timeout").stdout == quoted
    assert run_command("explain", stdin=b"sendDefaultImpl call timeout\n").stdout == quoted
    assert run_command("explain", stdin="sendDefaultImpl call timeout".encode("utf-16")).stdout == quoted


def test_an_unknown_text_says_so_with_the_nearest_three(run_command: RunCommand) -> None:
    done = run_command("explain", "sendDefaultImpl cal timed out")
    assert done.returncode == 1
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("unknown: ")
    assert lines[1].startswith("  sendDefaultImpl call timeout  (send_timeout: ")
    assert len(lines) == 4


def test_an_unknown_number_says_so_with_the_nearest_codes(run_command: RunCommand) -> None:
    done = run_command("explain", "99999")
    assert done.returncode == 1
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("unknown: no response code, ")
    assert [line.split(":")[0] for line in lines[1:]] == [
        "  10007 CREATE_REPLY_MESSAGE_EXCEPTION",
        "  10006 REQUEST_TIMEOUT_EXCEPTION",
        "  10005 NOT_FOUND_TOPIC_EXCEPTION",
    ]
    told = json.loads(run_command("explain", "99999", "--json").stdout)
    assert [each["text"] for each in told["nearest"]] == ["10007", "10006", "10005"]


def test_nothing_at_all_is_wrong_usage(run_command: RunCommand) -> None:
    for words in ((), ("",), ("  ",)):
        done = run_command("explain", *words)
        assert done.returncode == 2
        assert done.stderr.startswith(b"error: nothing to explain (")


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("1", ["1 SYSTEM_ERROR", "exit code 1 of the command pocketmq"]),
        ("2", ["2 SYSTEM_BUSY", "exit code 2 of the command pocketmq"]),
        ("14", ["14 SERVICE_NOT_AVAILABLE", "request code 14 QUERY_CONSUMER_OFFSET"]),
        ("16", ["16 NO_PERMISSION"]),
        ("209", ["209 POLLING_FULL / 209 UPDATE_AND_CREATE_ACL_CONFIG_FAILED", "request code 209 SUSPEND_CONSUMER"]),
        ("system_busy", ["2 SYSTEM_BUSY"]),
        ("SEND_MESSAGE_V2", ["request code 310 SEND_MESSAGE_V2"]),
        ("page_cache_busy", ["cause page_cache_busy"]),
        ("overload", ["overload"]),
        ("TIMEOUT_CLEAN_QUEUE", ["TIMEOUT_CLEAN_QUEUE"]),
        ("NotSafe", ["NotSafe"]),
        ("10002", ["10002 ACCESS_BROKER_TIMEOUT"]),
        ("FLUSH_SLAVE_TIMEOUT", ["FLUSH_SLAVE_TIMEOUT"]),
    ],
)
def test_a_number_has_all_its_meanings(asked: str, shown: list[str], run_command: RunCommand) -> None:
    done = run_command("explain", asked)
    assert done.returncode == 0
    assert [line for line in done.stdout.decode().splitlines() if line and not line.startswith(" ")] == shown


def test_a_number_names_the_texts_that_come_with_it(run_command: RunCommand) -> None:
    """So that a reader who has only the number sees what to look for."""
    out = run_command("explain", "14").stdout.decode()
    assert "  comes with  shutting_down: the broker is starting or stopping (the broker is starting)" in out
    assert "[REJECTREQUEST]" not in out, "its code is 2"
    assert run_command("explain", "123456").returncode == 1


def test_json_has_all_of_it(run_command: RunCommand) -> None:
    found = json.loads(run_command("explain", TIMEOUT, "--json").stdout)
    (each,) = found["explanations"]
    assert (found["known"], each["stored"], each["key"], each["values"]) == (
        True,
        "no",
        "queue_timeout",
        ["235", "875"],
    )
    assert each["causes"][0]["no_cures"]
    assert each["scenarios"] == ["timeout-clean-queue", "retry-codes"]
    done = run_command("explain", "strange", "--json")
    assert done.returncode == 1
    assert [len(each) for each in json.loads(done.stdout)["nearest"]] == [2, 2, 2]


def everything_said(text: str) -> str:
    found = explain(text.split("\n"))
    near = [] if found else nearest([text])
    lines: list[Any] = [*text_lines(found), *text_lines(found, 80), *unknown_lines(near)]
    return "\n".join(lines) + json.dumps(json_of(found, near), ensure_ascii=False).replace("\\n", "")


CONTROL = "\x07\x08\x0b\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2028\r"


@pytest.mark.parametrize("known", index()[1], ids=lambda known: known.text.template[:50])
def test_no_control_character_of_a_paste_is_printed(known: Any) -> None:
    """In the values, around the text, and in what an exception led to."""
    text = known.text.template.replace("%s", f"a{CONTROL}b").replace("%d", "17")
    said = everything_said(f"{CONTROL}{text}{CONTROL}\nCaused by: {text} {CONTROL}")
    assert said.replace("\n", "").isprintable()


@given(st.binary(max_size=400))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_explained_or_unknown(data: bytes) -> None:
    said = everything_said(data.decode("utf-8", errors="surrogateescape"))
    assert said.replace("\n", "").isprintable()


def test_a_terminal_gets_wrapped_lines() -> None:
    found = explain([TIMEOUT])
    assert max(map(len, text_lines(found, 80))) <= 110
    wrapped = [line for line in text_lines(found, 80) if line.startswith("  ")]
    assert max(map(len, wrapped)) <= 80
    assert " ".join(" ".join(wrapped).split()) == " ".join(
        " ".join(line for line in text_lines(found) if line.startswith("  ")).split()
    )


@pytest.mark.parametrize("row", [*KNOWN_ROWS, *REFUSALS.values()], ids=lambda row: row.name)
def test_the_commands_of_a_cure_exist(row: Row) -> None:
    """A reader copies them."""
    for text in (row.why, row.cure, row.price, *row.bad_cures):
        for words in re.findall(r"\bpocketmq ((?:[a-z-]+ ?){1,3})", text):
            asked = words.split()
            assert any(" ".join(asked[:count]) in {*EFFECTS, "doctor"} for count in range(1, len(asked) + 1)), words
