"""Help as it is written: typer hands help texts to rich, which takes ``[words]`` for markup and leaves them out.

Lives here: ``literal_help``, applied to the whole tree of commands once.
"""

import re
from typing import Any, Final

import typer

_BRACKET: Final = re.compile(r"(\\*)\[(?=[a-z#/@])")
"""What rich reads as a tag (rich.markup)."""


def literal_help(command: Any) -> Any:
    """Make a command and its subcommands show their help texts literally, and flags without a type; return it."""
    for name in ("help", "short_help", "epilog"):
        text = getattr(command, name, None)
        if text:
            setattr(command, name, _escape(text))
    for parameter in command.params:
        if getattr(parameter, "help", None):
            parameter.help = _escape(parameter.help)
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    help_option = command.get_help_option(typer.Context(command))
    if help_option is not None:  # made on demand, and kept
        help_option.metavar = ""
    for child in getattr(command, "commands", {}).values():
        literal_help(child)
    return command


def _escape(text: str) -> str:
    """Escape brackets as ``rich.markup.escape`` does, which takes 30 ms to import."""
    return _BRACKET.sub(lambda match: f"{match[1]}{match[1]}\\[", text)
