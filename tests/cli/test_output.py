"""The command's output and its exit codes."""

import json
import os
import pty
import subprocess
import sys

import pytest

from pocketmq.cli.exit_codes import CannotStart, ExitCode, exit_code_of
from pocketmq.cli.output import ProgressBar, print_error, print_json, print_table
from pocketmq.client.errors import NoNameServer, NoRoute, SendFailed
from pocketmq.common.errors import Cause, ConfigError, PocketMQError


def test_a_table_in_a_pipe_is_tab_separated_and_one_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "messages", "note"), [("a\tb\nc", 1000, None), ("d", 2.5, "x")], title="not shown")
    assert capsys.readouterr().out == "topic\tmessages\tnote\na b c\t1000\t\nd\t2.5\tx\n"


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [1, "x\ny"]})
    assert json.loads(capsys.readouterr().out) == {"a": [1, "x\ny"]}


def test_an_error_says_what_why_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(PocketMQError("send refused", why="the queue is full", hint="retry later"))
    assert capsys.readouterr().err == "error: send refused: the queue is full (retry later)\n"


def test_what_a_peer_sends_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """Of errors and tables, in a pipe as well: it may end on a terminal."""
    print_error(PocketMQError("a\x1b[2J", why="b\x07\nc", hint="d\x9b1m"))
    print_table(("topic",), [("e\x1b[2J",)])
    out, err = capsys.readouterr()
    assert err == "error: a\\x1b[2J: b\\x07; c (d\\x9b1m)\n"
    assert out == "topic\ne\ufffd[2J\n"


def test_a_drawn_table_is_clean_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(("topic",), [("e\x1b[2J",)])
    assert "e\ufffd[2J" in capsys.readouterr().out


def test_a_bar_in_a_pipe_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("produce", 10) as bar:
        bar.advance(10)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), ExitCode.USAGE),
        (CannotStart("x", cause=Cause.CONFIG), ExitCode.CANNOT_START),
        (NoNameServer("x"), ExitCode.NOT_REACHABLE),
        (NoRoute("x"), ExitCode.FAILED),
        (SendFailed("x", attempts=(), answer_code=2), ExitCode.FAILED),
        (PocketMQError("x", cause=Cause.CONNECTION), ExitCode.NOT_REACHABLE),
    ],
)
def test_an_error_becomes_an_exit_code(error: PocketMQError, code: ExitCode) -> None:
    assert exit_code_of(error) == code


def test_a_reader_that_goes_away_is_no_error() -> None:
    """With ``| head`` standard error stays empty, and the command ends."""
    script = (
        "from pocketmq.cli.output import quiet_broken_pipe\n"
        "with quiet_broken_pipe():\n"
        "    for number in range(100_000): print(number)\n"
    )
    reader, writer = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", script], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    os.read(reader, 10)
    os.close(reader)
    assert process.communicate(timeout=100)[1] == b""
    assert process.returncode == 0


def on_a_terminal(script: str) -> str:
    """Run ``script`` with a terminal for standard output and error; return its output."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen([sys.executable, "-c", script], stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    shown = b""
    try:
        while data := os.read(master, 4096):
            shown += data
    except OSError:  # Linux: the other end is closed
        pass
    os.close(master)
    assert process.wait(60) == 0, shown
    return shown.decode()


@pytest.mark.slow
def test_a_table_on_a_terminal_is_drawn_with_grouped_numbers() -> None:
    shown = on_a_terminal(
        "from pocketmq.cli.output import print_table\n"
        "print_table(('topic', 'messages'), [('T[x]', 12345)], title='all')"
    )
    assert "12,345" in shown
    assert "T[x]" in shown
    assert "all" in shown


@pytest.mark.slow
def test_what_takes_longer_than_a_second_shows_a_bar_with_its_rate() -> None:
    shown = on_a_terminal(
        "from pocketmq.cli import output\n"
        "output.PROGRESS_AFTER_S = 0\n"
        "output.REDRAW_S = 0\n"
        "with output.ProgressBar('produce', 1000) as bar:\n"
        "    for _ in range(10): bar.advance(100)\n"
    )
    assert "produce" in shown
    assert "500/1000" in shown
    assert "messages/s" in shown


@pytest.mark.slow
def test_an_error_on_a_terminal_has_a_line_for_each_of_why_and_hint() -> None:
    shown = on_a_terminal(
        "from pocketmq.cli.output import print_error; from pocketmq.common.errors import PocketMQError\n"
        "print_error(PocketMQError('send refused', why='[OVERLOAD]system busy', hint='retry later'))"
    )
    assert "why   [OVERLOAD]system busy" in shown
    assert "hint  retry later" in shown
