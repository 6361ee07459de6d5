"""The reference of the command line in docs/cli.md, from the help texts that ``pocketmq`` shows itself.

Lives here: ``commands``, the text of every command, with usage, arguments and options as typer and click describe them.
"""

import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final

import typer

from pocketmq.cli.app import RootOptions, build_command

WIDTH: Final = 120
TEXT: Final = re.compile(r"<(?:str|list\[str\])>")
NUMBER: Final = re.compile(r"<(?:int|float|list\[int\])(?: range)?>|\b(?:INTEGER|FLOAT)(?: RANGE)?\b")


def commands(_page: str) -> str:
    """Return a section for each command that does something; groups only lend their names."""
    root = build_command(RootOptions())
    return "\n".join(_sections(root, typer.Context(root, info_name="pocketmq"))) + "\n"


def _sections(command: Any, context: Any) -> Iterator[str]:
    children = getattr(command, "commands", None)
    if children is None or context.parent is None:
        yield _section(command, context)
    for name, child in (children or {}).items():
        if not child.hidden:
            yield from _sections(child, typer.Context(child, info_name=name, parent=context))


def _section(command: Any, context: Any) -> str:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"## {context.command_path}", "", _paragraphs(_text(command.help or "")), "", "```text", usage, "```", ""]
    records = [
        (_name(record[0]), record[1])
        for parameter in command.get_params(context)
        if (record := parameter.get_help_record(context)) and "--help" not in parameter.opts
    ]
    rows = [f"| `{_cell(name)}` | {_cell(_text(text))} |" for name, text in records]
    if rows:
        parts += ["| argument or option | meaning |", "|---|---|", *rows, ""]
    return "\n".join(parts)


def _name(text: str) -> str:
    """Return what to type. Versions of typer write types differently; an argument's name says enough without one."""
    text = re.sub(r"^([A-Za-z_|\[\]…]+) <[^>]*>$", r"\1", text)
    return NUMBER.sub("N", TEXT.sub("TEXT", text))


def _text(text: str) -> str:
    """Return a help text without the escapes that keep rich from reading its brackets as markup."""
    return text.replace("\\[", "[").replace("\b", "").strip()


def _paragraphs(text: str) -> str:
    """Return a text in lines of at most ``WIDTH`` characters."""
    lines = (textwrap.wrap(line, WIDTH, break_long_words=False, break_on_hyphens=False) for line in text.split("\n"))
    return "\n".join("\n".join(each) for each in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
