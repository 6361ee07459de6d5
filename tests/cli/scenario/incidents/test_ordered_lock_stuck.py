"""The scenario ``ordered-lock-stuck`` without processes: from the events of two members and a broker to a phase."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli.scenario.harness.ordered_group import Member, Moved
from pocketmq.cli.scenario.incidents.ordered_lock_stuck import OrderedPlan, plans, to_phase
from pocketmq.cli.scenario.report.picture_file import draw
from pocketmq.cli.scenario.report.terminal_picture import COLUMNS, print_picture, row
from tests.cli.scenario.conftest import report_of

MS = 1_000_000


class SilentBroker:
    """A broker whose log is given."""

    name = "broker-1a"

    def __init__(self, *lines: dict[str, Any]) -> None:
        self._lines = list(lines)

    def log_lines(self) -> list[dict[str, Any]]:
        return self._lines


def moved_of(still_ms: int, *, lost: int = -1, swap: bool = False) -> Moved:
    """Return the results when the first member ends at 1,000 ms and the second continues ``still_ms`` later."""
    first, second = Member("one", Path("one")), Member("two", Path("two"))
    first.client_id, second.client_id = "client-1", "client-2"
    moved = Moved(0, 1000 * MS, first, second)
    for number in range((1000 + still_ms + 500) // 50):
        sent_ms = number * 50
        moved.sent.append(sent_ms * MS)
        moved.locks.append((sent_ms * MS, "client-1" if sent_ms < 1000 + still_ms else "client-2"))
        if number == lost:
            continue
        if sent_ms < 1000:
            first.handled.append((number, (sent_ms + 2) * MS))
        else:
            second.handled.append((number, max(sent_ms + 2, 1000 + still_ms) * MS + number))
    if swap:
        second.handled[0], second.handled[1] = (
            (second.handled[1][0], second.handled[0][1]),
            (
                second.handled[0][0],
                second.handled[1][1],
            ),
        )
    return moved


def plan(name: str) -> OrderedPlan:
    return next(each for each in plans(True) if each.name == name)


def phase_of(name: str, moved: Moved) -> Any:
    broker: Any = SilentBroker()
    return to_phase(plan(name), broker, moved)


@pytest.mark.parametrize(
    ("name", "still_ms", "ok"),
    [
        ("killed, RocketMQ's times", 5000, True),
        ("killed, RocketMQ's times", 500, False),
        ("killed, RocketMQ's times", 20_000, False),
        ("graceful stop", 50, True),
        ("graceful stop", 4000, False),
        ("killed, 5 s / 15 s", 1500, True),
        ("killed, 5 s / 15 s", 6000, False),
        ("killed, early release", 1000, True),
        ("killed, early release", 5000, False),
    ],
)
def test_each_run_is_judged_by_how_long_the_queue_stood_still(name: str, still_ms: int, ok: bool) -> None:
    """A run with too short a stop fails as well: its fault did not happen."""
    phase = phase_of(name, moved_of(still_ms))
    assert phase.ok == ok
    assert phase.delivered == phase.sends


def test_a_lost_message_and_a_broken_order_are_found() -> None:
    """The run fails even if all other checks hold."""
    assert [check.what for check in phase_of("graceful stop", moved_of(50, lost=25)).checks if not check.ok] == [
        "every message is handled"
    ]
    assert [check.what for check in phase_of("graceful stop", moved_of(50, swap=True)).checks if not check.ok] == [
        "in the order of the key"
    ]


def test_the_timeline_shows_the_holder_of_the_lock_and_the_working_member() -> None:
    """The lock of a dead member looks different from that of a living one."""
    phase = phase_of("killed, RocketMQ's times", moved_of(4000))
    lock = [(span.what, span.from_s, span.to_s) for span in phase.spans if span.lane == "lock"]
    assert [what for what, _, _ in lock] == ["first", "first, which is gone", "second"]
    assert lock[1][1] == pytest.approx(1.05)
    assert lock[1][2] == pytest.approx(4.95)
    work = [(span.what, round(span.from_s, 1), round(span.to_s, 1)) for span in phase.spans if span.lane == "work"]
    assert work == [("first", 0.0, 1.0), ("second", 5.0, 5.5)]
    cells = row(phase, "work", 5.5)
    assert len(cells) == COLUMNS
    assert (cells[0], cells[COLUMNS // 2], cells[-1]) == ("first", "", "second")


def test_what_the_second_said_is_evidence() -> None:
    """The evidence has the wait with its holder, and RocketMQ's lines from the broker's log."""
    moved = moved_of(5000)
    moved.second.events.append(
        {
            "event": "queue_waits_for_lock",
            "waited_ms": 3000,
            "holder": "client-1",
            "holder_age_ms": 9,
            "expires_in_ms": 7,
        }
    )
    line = {"event": "queue_lock_refused", "topic": "Orders-broker-1a", "text": "tryLockBatch, message queue locked by"}
    broker: Any = SilentBroker(line, {"event": "broker_started"}, {**line, "topic": "%RETRY%billing"})
    evidence = {each.what: each.value for each in to_phase(plan("killed, RocketMQ's times"), broker, moved).evidence}
    assert "3000 ms for client-1" in evidence["queue_waits_for_lock"]
    assert evidence["lock log, 1 × queue_lock_refused"] == line["text"]


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_timeline_in_a_file(tmp_path: Path, kind: str) -> None:
    """The picture has the format of the file's suffix."""
    report = report_of(*(phase_of(each.name, moved_of(1500)) for each in plans(True)))
    path = tmp_path / f"timeline.{kind}"
    draw(report, str(path))
    content = path.read_bytes()
    assert (b"<svg" in content) if kind == "svg" else content.startswith(b"\x89PNG")


def test_the_timeline_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Two rows per run; in a pipe no rows."""
    report = report_of(phase_of("killed, RocketMQ's times", moved_of(4000)))
    print_picture(report)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_picture(report)
    out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    [lock] = [line for line in out.splitlines() if line.startswith("  lock")]
    assert "1x" in lock
    assert "x2" in lock
    assert "stands still" in out
