"""Help as it is written: typer hands help texts to rich, which takes ``[words]`` for markup and leaves them out, and
keeps the line ends of docstrings, which break lines in the middle on a terminal that is narrower than our source.

Lives here: ``literal_help``, applied to the whole tree of commands once.
"""

import re
from typing import Any, Final

import typer

HELP_OPTIONS: Final = ["-h", "--help"]
_BRACKET: Final = re.compile(r"(\\*)\[(?=[a-z#/@])")
"""What rich reads as a tag (rich.markup)."""
_LINE_END: Final = re.compile(r"(?<=\S)\n(?=[^\s*-])")
"""One within a paragraph."""


def literal_help(command: Any) -> Any:
    """Make a command and its subcommands show their help texts literally, and flags without a type; return it."""
    for name in ("help", "short_help", "epilog"):
        text = getattr(command, name, None)
        if text:
            setattr(command, name, _escape(_flow(text)))
    for parameter in command.params:
        if getattr(parameter, "help", None):
            parameter.help = _escape(parameter.help)
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    help_option = command.get_help_option(typer.Context(command, help_option_names=HELP_OPTIONS))
    if help_option is not None:  # made on demand, and kept
        help_option.metavar = ""
    for child in getattr(command, "commands", {}).values():
        literal_help(child)
    return command


def _flow(text: str) -> str:
    """Join the lines of each paragraph; lists, indented lines and blocks that begin with ``\\b`` stay as they are."""
    return _LINE_END.sub(" ", text) if "\b" not in text else text


def _escape(text: str) -> str:
    """Escape brackets as ``rich.markup.escape`` does, which takes 30 ms to import."""
    return _BRACKET.sub(lambda match: f"{match[1]}{match[1]}\\[", text)
