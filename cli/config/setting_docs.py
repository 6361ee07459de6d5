"""What each setting is for: the strings below the fields of the settings' structs, which exist once.

Lives here: ``SettingDoc`` and ``setting_docs``, from which ``pocketmq config``, docs/settings.md and the files in
``conf/`` are made.
"""

import ast
import inspect
import json
import re
import textwrap
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import msgspec

from pocketmq.common.settings import HIDDEN, expected_text, is_secret


@dataclass(frozen=True, slots=True)
class SettingDoc:
    """One setting: its default, the values that it takes, and its purpose in one line of text."""

    section: str
    key: str
    group: str
    """The heading above it in the source; empty: none."""
    default: Any
    takes: str
    text: str
    is_secret: bool = False
    """Whether its value is never shown."""

    @property
    def name(self) -> str:
        """Return ``section.key``."""
        return f"{self.section}.{self.key}"

    def with_default(self, default: object) -> Self:
        """Return the same setting with another default."""
        return replace(self, default=default)

    @property
    def line(self) -> str:
        """Return ``key = value`` as TOML has it."""
        return f"{self.key} = {self.toml(self.default)}"

    def toml(self, value: object) -> str:
        """Return a value of this setting as TOML has it; a port without underscores, a secret hidden."""
        if self.is_secret and value:
            return toml_value(HIDDEN)
        return str(value) if self.key.endswith("_port") else toml_value(value)


def setting_docs(sections: Mapping[str, type[msgspec.Struct]]) -> list[SettingDoc]:
    """Return all settings of some sections, in the order of their structs. Reads the source of each struct."""
    return [doc for section, struct in sections.items() for doc in _docs_of(section, struct)]


def _docs_of(section: str, struct: type[msgspec.Struct]) -> Iterator[SettingDoc]:
    source = textwrap.dedent(inspect.getsource(struct))
    lines = source.splitlines()
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.ClassDef)
    fields = {field.name: field for field in msgspec.structs.fields(struct)}
    group, last_line = "", tree.lineno
    for statement, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        field = fields.get(statement.target.id)
        if field is None:  # a class variable
            continue
        for line in lines[last_line : statement.lineno - 1]:
            heading = re.fullmatch(r"    # (.+)", line)
            group = heading[1] if heading else group
        last_line = statement.lineno
        text = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = " ".join(str(following.value.value).split()).replace("``", "`")
        yield SettingDoc(section, field.name, group, field.default, _takes(field.type), text, is_secret(field.type))


def _takes(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(toml_value(each) for each in typing.get_args(kind))
    return expected_text(kind).removesuffix(" (in quotes in a file)")


def toml_value(value: object) -> str:
    """Return a value as TOML writes it.

    >>> toml_value(1_073_741_824), toml_value(True), toml_value("a"), toml_value(0.5)
    ('1_073_741_824', 'true', '"a"', '0.5')

    A text of TOML has JSON's escapes.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= 10_000 else str(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
