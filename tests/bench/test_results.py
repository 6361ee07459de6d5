"""Result lines: written whole, read back, damage reported with its line."""

from pathlib import Path

import pytest

from bench.base.results import ResultFile, read_lines


def test_lines_come_back_as_they_were_written(tmp_path: Path) -> None:
    """Each line has its kind, its time and its fields, and is on the disk at once."""
    file = ResultFile(tmp_path / "deep" / "run.jsonl")
    file.write("floor", floor="echo", messages_per_s=5)
    file.write("run", case="c", figures={"p50_ms": 0.5})
    assert read_lines(file.path) == file.lines
    file.close()
    assert [line["kind"] for line in file.lines] == ["floor", "run"]


def test_a_last_line_cut_short_is_left_out(tmp_path: Path) -> None:
    """A run killed while it writes keeps the lines it has written."""
    path = tmp_path / "run.jsonl"
    path.write_text('{"kind": "end"}\n{"kind": "run", "fig')
    assert read_lines(path) == [{"kind": "end"}]


@pytest.mark.parametrize("bad", ['{"kind": "run"', '{"kind": "else"}', "[1]"])
def test_damage_inside_is_an_error_that_names_the_line(tmp_path: Path, bad: str) -> None:
    """A damaged line must not become a figure."""
    path = tmp_path / "run.jsonl"
    path.write_text(f'{{"kind": "end"}}\n{bad}\n{{"kind": "end"}}\n')
    with pytest.raises(ValueError, match=r"run\.jsonl:2"):
        read_lines(path)


def test_an_unknown_kind_is_not_written(tmp_path: Path) -> None:
    """``read_lines`` would refuse it."""
    file = ResultFile(tmp_path / "run.jsonl")
    with pytest.raises(ValueError, match="no such kind"):
        file.write("figure", value=1)
    file.close()
