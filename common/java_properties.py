r"""Java's property files, RocketMQ's format of ``broker.conf`` and ``namesrv.conf``.

Lives here: ``read_properties``, ``write_properties``; ``looks_like_properties`` tells such a file from TOML. Format:
``java.util.Properties.load`` (Java 8): ``#`` and ``!`` open comments; ``=``, ``:`` or blanks end a key; a line that
ends with an odd number of backslashes goes on in the next one; ``\t \n \r \f`` and ``\uXXXX`` are escapes, and any
other escaped character stands for itself.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from pocketmq.common.errors import ConfigError

_CAMEL_KEY: Final = re.compile(r"^[ \t\f]*[a-z][a-z0-9]*[A-Z]\w*[ \t\f]*[=:]", re.MULTILINE)
"""A key as RocketMQ spells its settings; ours are snake_case."""
_SECTION: Final = re.compile(r"^[ \t]*\[", re.MULTILINE)
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_KEY: Final = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NAMES_OF_ESCAPES: Final = {character: name for name, character in _ESCAPES.items()}
_KEY_MARK: Final = re.compile(r"[\\=:#!\s\ufeff]")
_VALUE_MARK: Final = re.compile(r"[\\\t\n\r\f]|^ ")


class Property(NamedTuple):
    """One setting of a file; ``line`` counts from 1 and is the line of the key."""

    key: str
    value: str
    line: int


def looks_like_properties(text: str) -> bool:
    """Return whether a settings file is RocketMQ's: it has a camelCase key and no ``[section]``."""
    return _CAMEL_KEY.search(text) is not None and _SECTION.search(text) is None


def read_properties(text: str, name: str) -> list[Property]:
    r"""Return the settings of a text in their order; ``name`` is the file's. Blanks at the end of a value are removed,
    which Java keeps. Raise ``ConfigError`` for an illegal ``\u``.

    >>> read_properties("! a\nlistenPort : 10911\nbrokerName=a\\\n   b\\u0021\n", "broker.conf")
    [Property(key='listenPort', value='10911', line=2), Property(key='brokerName', value='ab!', line=3)]
    """
    found = []
    for line, logical in _logical_lines(text.removeprefix("\ufeff")):
        match = _KEY.match(logical)
        assert match is not None, "the pattern matches any text"
        try:
            found.append(Property(_unescaped(match[1]), _unescaped(match[2]).rstrip(), line))
        except ValueError as error:
            raise ConfigError("bad setting", why=f"{name} line {line}: {error}", hint="write \\uXXXX") from error
    return found


def write_properties(settings: Mapping[str, str]) -> str:
    r"""Return settings as lines from which every reader gets the same names and values, whatever characters they have.

    >>> write_properties({"delete when": "04\n#", "path": "C:\\x"})
    'delete\\ when=04\\n#\npath=C:\\\\x\n'
    """
    return "".join(
        f"{_KEY_MARK.sub(_escaped, name)}={_VALUE_MARK.sub(_escaped, value)}\n" for name, value in settings.items()
    )


def _escaped(match: re.Match[str]) -> str:
    return "\\" + _NAMES_OF_ESCAPES.get(match[0], match[0])


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first line, text) of each line that is neither blank nor a comment, with its
    continuations."""
    parts: list[str] = []
    start = 0
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.lstrip(_BLANKS)
        if not any(parts):  # after a lone backslash Java begins again
            parts = []
            if not line or line[0] in "#!":
                continue
            start = number
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        parts.append(line[:-1] if continues else line)
        if not continues:
            yield start, "".join(parts)
            parts = []
    if parts:
        yield start, "".join(parts)


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise ValueError(f"{text[match.start() : match.start() + 6]!r} is no character")
        return _ESCAPES.get(escaped, escaped)

    return _ESCAPE.sub(one, text)
