"""``tools/count_lines.py`` counts the lines of statements, and no others."""

import pytest

from tools.count_lines import code_lines, count, report

SOURCE = b'''"""A module.

With two paragraphs.
"""

import os  # a comment beside code counts once

LIMIT = 3
"""What a constant means is a docstring, too."""


def text() -> str:
    """Return text."""
    # a comment alone
    return """first

    third"""
'''


def test_blank_lines_comments_and_docstrings_are_not_code() -> None:
    """Two lines of a string within a statement count; its blank line does not."""
    assert code_lines(SOURCE) == 5
    assert code_lines(b"") == 0


def test_a_file_that_is_not_python_is_an_error() -> None:
    with pytest.raises(SyntaxError):
        code_lines(b"def (:\n")


def test_packages_are_the_first_folders_of_a_path() -> None:
    """Files outside the areas, and outside the requested folders, are left out."""
    files = [
        ("store/disk/a.py", b"a = 1\n"),
        ("store/b.py", b"b = 1\n"),
        ("bench/c.py", b"c = 1\n"),
        ("setup.py", b"d = 1\n"),
    ]
    assert count(iter(files), 1, []) == {"store": 2, "bench": 1}
    assert count(iter(files), 2, ["store/"]) == {"store/disk": 1, "store": 1}


def test_the_report_compares_with_a_base() -> None:
    """The table lists a deleted package, and each area has its sum."""
    now, base = (
        count(iter([("store/a.py", b"a = 1\n")]), 1, []),
        count(iter([("common/a.py", b"a = 1\nb = 2\n")]), 1, []),
    )
    lines = list(report(now, base))
    assert [line.split()[0] for line in lines] == ["common", "store", "="]
    assert lines[-1].split()[2:] == ["2", "->", "1", "-1", "-50.0%"]
