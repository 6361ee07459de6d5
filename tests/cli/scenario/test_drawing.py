"""The tables and pictures of a report."""

import io
import re
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.scenario.report import picture_file, terminal_picture
from pocketmq.cli.scenario.report.report import Report
from pocketmq.cli.scenario.report.tables import print_report
from pocketmq.cli.scenario.report.terminal_picture import COLUMNS, STYLES, grid, print_picture, shade
from pocketmq.common.errors import ConfigError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_tables_say_what_ran_what_was_seen_and_what_it_costs(
    report: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a pipe: plain lines, with every run, exact texts, evidence, checks, cure and price."""
    print_report(report)
    text = capsys.readouterr().out
    assert "[TIMEOUT_CLEAN_QUEUE]broker busy, period in queue: 205ms, size of queue: 5\t10" in text
    assert "most sends that waited in the queue\t875\truntime info" in text
    assert "broker.send_drain_max=1" in text
    assert "Price: the price." in text
    assert "== As expected" in text
    assert "4 of 4 checks hold" in text


def test_what_differs_from_the_expectation_is_said(
    report_that_differs: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    """The heading changes, and the report names the check with the value found."""
    print_report(report_that_differs)
    text = capsys.readouterr().out
    assert "== NOT as expected" in text
    assert "as it is: expected: the fault hit the disk; found: 0 calls hit" in text


def test_on_a_terminal_tables_are_drawn(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts with brackets stay texts, not markup."""
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    print_report(report)
    assert "[TIMEOUT_CLEAN_QUEUE]" in terminal.getvalue()
    assert "\x1b[1m" in terminal.getvalue()


def test_every_send_is_in_the_grid_at_its_time_and_latency(report: Report) -> None:
    """The counts add up; slow sends are above fast ones; late ones are right of early ones."""
    phase = report.phases[0]
    cells = grid(phase, 2.9)
    assert sum(count for row in cells for _, count in row) == len(phase.points) == 40
    assert all(len(row) == COLUMNS for row in cells)
    rows = [number for number, row in enumerate(cells) if any(outcome == 1 for outcome, _ in row)]
    assert max(rows) < min(number for number, row in enumerate(cells) if any(outcome == 0 for outcome, _ in row))
    assert any(row[0][1] for row in cells)
    assert any(row[-1][1] for row in cells)
    assert sum(count for row in grid(phase, 0) for _, count in row) == 40


def test_colors_and_shades_differ() -> None:
    """An empty cell is blank, a full one is the darkest."""
    assert shade(0, 10) == " "
    assert shade(10, 10) == "█"
    assert shade(1, 1000) == "·"
    assert "green" not in terminal_picture.STYLES


def test_an_outcome_has_one_color_in_all_runs(report: Report) -> None:
    """Also where its numbers differ, and where an earlier run has others; no failed outcome is green."""
    first, *_ = report.phases
    delivered, failed = first.outcomes
    other = replace(failed, text="another failure")
    later = replace(first, outcomes=[other, replace(failed, text=re.sub(r"\d+ms", "987ms", failed.text)), delivered])
    colors = replace(report, phases=[first, later]).colors(("green",), STYLES)
    assert [colors[each.text_without_numbers] for each in first.outcomes] == ["green", "red"]
    assert [colors[each.text_without_numbers] for each in later.outcomes] == ["yellow", "red", "green"]
    many = [replace(other, text=f"failure {letter}") for letter in "abcdefghi"]
    assert set(replace(report, phases=[replace(first, outcomes=many)]).colors((), STYLES).values()) == set(STYLES)


def test_the_terminal_picture_is_for_terminals(
    report: Report, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a pipe there is none; on a terminal one panel per run with its outcomes."""
    print_picture(report)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    print_picture(report)
    assert terminal.getvalue().count("30 × SEND_OK") == 2
    assert "1,000 ms │" in terminal.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["out.png", "out.svg"])
def test_the_picture_in_a_file(name: str, report: Report, tmp_path: Path) -> None:
    """Both kinds are written, in the format of their suffix."""
    pytest.importorskip("matplotlib")
    path = tmp_path / name
    picture_file.check(str(path))
    picture_file.draw(report, str(path))
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG") if name.endswith("png") else b"<svg" in content


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong suffix, a missing directory, a missing library: each error has the cure."""
    with pytest.raises(ConfigError, match=r"neither \.png nor \.svg"):
        picture_file.check("out.pdf")
    with pytest.raises(ConfigError, match="no directory"):
        picture_file.check(str(tmp_path / "no" / "out.png"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(CommandFailed, match=r"pocketmq\[plots\]"):
        picture_file.check(str(tmp_path / "out.png"))
