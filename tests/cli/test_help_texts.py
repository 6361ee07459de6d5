"""The help of every command shows its texts as they are written."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from pocketmq.cli.app import RootOptions, build_app
from pocketmq.cli.help_texts import literal_help


def tree(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command below one with its path."""
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from tree(child, (*path, name))


PLAIN = dict(tree(typer.main.get_command(build_app(RootOptions()))))
"""The commands with their texts as the source has them."""


def words(text: str) -> str:
    """Return a text without frames and white space, so that line breaks do not matter."""
    return re.sub(r"[\s│╭╮╰╯─]+", "", text)


@pytest.mark.parametrize("path", PLAIN, ids=" ".join)
def test_help_shows_what_the_source_says(path: tuple[str, ...], run_command: Any) -> None:
    """Brackets too, which rich takes for markup; no flag has a type."""
    shown = run_command(*path, "--help", env={"COLUMNS": "80"}).stdout.decode()
    assert "<bool>" not in shown
    source = PLAIN[path]
    for text in [source.help, *(getattr(parameter, "help", None) for parameter in source.params)]:
        for bracket in re.findall(r"\[[^\]\n]*\]", text or ""):
            assert words(bracket) in words(shown), bracket


@pytest.mark.parametrize("path", [(), ("topic",), ("topic", "list"), ("standalone",)], ids=" ".join)
def test_the_short_option_shows_the_help(path: tuple[str, ...], run_command: Any) -> None:
    short, long = (run_command(*path, option) for option in ("-h", "--help"))
    assert (short.returncode, short.stdout) == (0, long.stdout)


def test_a_bracket_stays() -> None:
    """``[all]`` in a help text is no markup, nor is it where a backslash stands before it."""
    app = typer.Typer()
    app.command(help="pocketmq[all], 1[2], a\\[b]")(lambda: None)
    command = literal_help(typer.main.get_command(app))
    assert command.help == "pocketmq\\[all], 1[2], a\\\\\\[b]"


def test_a_paragraph_flows() -> None:
    """Line ends of the source do not break lines on a narrow terminal; paragraphs, lists and indented lines stay."""
    app = typer.Typer()
    app.command(help="One\ntwo.\n\nThree\nfour:\n  five\n- six")(lambda: None)
    assert literal_help(typer.main.get_command(app)).help == "One two.\n\nThree four:\n  five\n- six"
