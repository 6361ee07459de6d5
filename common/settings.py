"""Settings: defaults < file < environment < flags, merged once, every value with the place it came from.

Lives here: reading a TOML text, ``POCKETMQ_SECTION__KEY`` variables and ``section.key=value`` flags, and the messages
about bad ones.
"""

import difflib
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec

from pocketmq.common.errors import DECODE_ERRORS, ConfigError
from pocketmq.common.former_names import warn_renamed
from pocketmq.common.spelling import camel_case, snake_case

ENVIRONMENT_PREFIX: Final = "POCKETMQ_"
CLIENT_VARIABLES: Final = frozenset(
    (
        "POCKETMQ_BROKER_ADDRESSES",
        *(f"POCKETMQ_TLS_{name}" for name in ("CA", "CERT", "KEY", "KEY_PASSWORD", "SERVER_HOSTNAME", "VERIFY")),
    )
)
"""Variables of clients (``cli/connection.py``, ``client/connection/broker_addresses.py``), although they look like
settings of a section ``tls`` or ``broker``."""
NOT_SET: Final = "default"
"""The origin of a value that nothing gave."""
Secret = Annotated[str, msgspec.Meta(extra={"secret": True})]
"""The type of a setting whose value is never shown."""
HIDDEN: Final = "(hidden)"
"""Stands for the value of a secret."""
FILE_BYTES_MAX: Final = 1 << 20
"""A settings file above this is refused: it is something else."""
_ERRORS_MAX = 20

_SECTION_LINE = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]+")
_KEY_LINE = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([A-Za-z0-9_.-]+))\s*=""")

StructT = TypeVar("StructT", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Given:
    """A value that was set. ``origin`` says where: ``broker.toml line 7``, ``--set store.x=1``.

    ``textual`` is true where everything is text (environment, flags): then ``"1_000"`` may mean a number.
    """

    value: object
    origin: str
    textual: bool = False
    former: str = ""
    """The former name of the key, where the value was given under it."""


Layer = Mapping[tuple[str, str], Given]
"""(section, key) → the value given; a later layer wins over an earlier one."""


class Settings:
    """Converted settings, one struct a section. ``get(StoreConfig)`` returns the section of that type."""

    __slots__ = ("_origins", "_structs", "notes", "renamed")

    def __init__(
        self,
        structs: Mapping[str, msgspec.Struct],
        origins: Mapping[tuple[str, str], str],
        renamed: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> None:
        self._structs = dict(structs)
        self._origins = dict(origins)
        self.renamed = tuple(renamed)
        """Warnings about settings that were given under former names."""
        self.notes = tuple(notes)
        """What a start says about a RocketMQ file: keys that mean nothing here, and why."""

    def get(self, kind: type[StructT]) -> StructT:
        """Return the section whose type is ``kind``."""
        for struct in self._structs.values():
            if type(struct) is kind:
                return struct
        raise KeyError(kind)

    def origin(self, section: str, key: str) -> str:
        """Return where a value came from; ``NOT_SET`` if it was not set."""
        return self._origins.get((section, key), NOT_SET)

    def with_section(self, struct: msgspec.Struct) -> "Settings":
        """Return the settings with another struct for the section of its type; the origins stay."""
        kinds = {name: struct if type(each) is type(struct) else each for name, each in self._structs.items()}
        return Settings(kinds, self._origins, self.renamed, self.notes)

    def with_notes(self, notes: Sequence[str]) -> "Settings":
        """Return the settings with other notes."""
        return Settings(self._structs, self._origins, self.renamed, notes)


class SettingsReader:
    """Knows the sections and their types; reads layers and merges them. Opens nothing, reads no environment.

    A struct with a class attribute ``former_names`` (former name → name) takes keys under former names as well, with a
    ``DeprecationWarning``; in one layer the name wins over the former name.

    >>> class StoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    ...     flush_disk_type: str = "ASYNC_FLUSH"
    >>> reader = SettingsReader({"store": StoreConfig})
    >>> settings = reader.merge(reader.from_flags(["flush_disk_type=SYNC_FLUSH"]))
    >>> settings.get(StoreConfig).flush_disk_type, settings.origin("store", "flush_disk_type")
    ('SYNC_FLUSH', '--set flush_disk_type=SYNC_FLUSH')
    """

    def __init__(self, sections: Mapping[str, type[msgspec.Struct]]) -> None:
        self._sections = dict(sections)
        self._fields = {
            section: {field.name: field.type for field in msgspec.structs.fields(kind)}
            for section, kind in sections.items()
        }
        self._former: dict[str, Mapping[str, str]] = {
            section: getattr(kind, "former_names", {}) for section, kind in sections.items()
        }

        self._rocketmq = {
            rocketmq_name(kind, field): field for kind in sections.values() for field in kind.__struct_fields__
        }
        """RocketMQ's spelling → name, over all sections: one spelling never has two names."""

    def from_values(self, values: Mapping[str, object], origin: str) -> Layer:
        """Return a layer of ``section.key`` → value that the program gives (an option such as ``--broker-port``)."""
        layer = {}
        for name, value in values.items():
            section, _, key = name.partition(".")
            assert key in self._fields[section], name
            layer[section, key] = Given(value, origin)
        return layer

    def from_file(self, text: str, name: str) -> Layer:
        """Return what a TOML text gives; ``name`` is the file's. Raise ``ConfigError`` with all faults."""
        if len(text) > FILE_BYTES_MAX:
            raise ConfigError(f"{name} is not read", why=f"{len(text)} characters", hint="a settings file is small")
        try:
            table = tomllib.loads(text)
        except (*DECODE_ERRORS, tomllib.TOMLDecodeError) as error:
            hint = "see https://toml.io; pocketmq config template prints a file with every setting"
            raise ConfigError(f"{name} is not TOML", why=str(error), hint=hint) from error
        lines = _key_lines(text)

        def place(path: str) -> str:
            line = lines.get(path)
            return name if line is None else f"{name} line {line}"

        return self._from_table(table, name, place)

    def from_mapping(self, table: Mapping[str, object], name: str) -> Layer:
        """Return what nested mappings give: section → key → value. ``name`` says whose they are, for messages."""
        return self._from_table(table, name, lambda _path: name)

    def _from_table(self, table: Mapping[str, object], name: str, place: Callable[[str], str]) -> Layer:
        layer: dict[tuple[str, str], Given] = {}
        problems: list[str] = []
        for section, content in table.items():
            if not isinstance(content, Mapping):
                problems.append(
                    f"{place(section)}: {section!r} stands outside a section{self._suggest_section_for(section)}"
                )
            elif section not in self._fields:
                problems.append(f"{place(section)}: unknown section [{section}]{_nearest(section, self._fields)}")
            else:
                for key, value in content.items():
                    origin = place(f"{section}.{key}")
                    if not self._take(layer, section, key, Given(value, origin)):
                        problems.append(
                            f"{origin}: unknown key {key!r} in [{section}]{self._suggest_key(section, key)}"
                        )
        _raise(problems, name)
        return layer

    def from_environment(self, environment: Mapping[str, str]) -> Layer:
        """Return what ``POCKETMQ_SECTION__KEY`` variables give.

        Names without ``__`` are not settings and left alone, unless they look like one with an underscore too few and
        are no variable of a client.
        """
        layer: dict[tuple[str, str], Given] = {}
        problems: list[str] = []
        for name in sorted(environment):
            section_text, separator, key_text = name.removeprefix(ENVIRONMENT_PREFIX).partition("__")
            if not name.startswith(ENVIRONMENT_PREFIX):
                continue
            if name in CLIENT_VARIABLES:
                continue
            if not separator:
                for section in self._fields:
                    key_text = section_text.lower().removeprefix(f"{section}_")
                    if key_text != section_text.lower():
                        problems.append(
                            f"environment variable {name}: two underscores stand between section and key: "
                            f"{ENVIRONMENT_PREFIX}{section.upper()}__{key_text.upper()}"
                        )
                continue
            section, key = section_text.lower(), key_text.lower()
            if section not in self._fields:
                near = _nearest(section, self._fields)
                problems.append(f"environment variable {name}: unknown section {section!r}{near}")
            elif not self._take(
                layer, section, key, Given(environment[name], f"environment variable {name}", textual=True)
            ):
                near = self._suggest_key(section, key)
                problems.append(f"environment variable {name}: unknown key {key!r} in [{section}]{near}")
        _raise(problems, "the environment")
        return layer

    def from_flags(self, flags: Iterable[str], option: str = "--set") -> Layer:
        """Return what ``section.key=value`` flags give; ``key=value`` where only one section has the key.

        A key may have RocketMQ's spelling: ``flushDiskType=SYNC_FLUSH``.
        """
        layer: dict[tuple[str, str], Given] = {}
        problems: list[str] = []
        for flag in flags:
            name, equals, value = flag.partition("=")
            origin = f"{option} {flag}"
            section, dot, key = name.strip().partition(".")
            if not equals:
                problems.append(f"{origin}: no '='; write section.key=value")
                continue
            if not dot:
                key = section
            key = self._rocketmq.get(key, key)
            if not dot:
                owners = [each for each, fields in self._fields.items() if key in fields or key in self._former[each]]
                if len(owners) != 1:
                    full = " or ".join(f"{each}.{key}" for each in owners)
                    problems.append(
                        f"{origin}: {key!r} is in more than one section; write {full}"
                        if owners
                        else f"{origin}: unknown key {key!r}{self._suggest_anywhere(key)}"
                    )
                    continue
                section = owners[0]
            if section not in self._fields:
                problems.append(f"{origin}: unknown section {section!r}{_nearest(section, self._fields)}")
            elif is_secret(self._fields[section].get(key)):
                problems.append(
                    f"{option} {section}.{key}: a secret on the command line is seen by every user of the machine; put"
                    f" it into a settings file, or into {ENVIRONMENT_PREFIX}{section.upper()}__{key.upper()}"
                )
            elif not self._take(layer, section, key, Given(value, origin, textual=True)):
                problems.append(f"{origin}: unknown key {key!r} in [{section}]{self._suggest_key(section, key)}")
        _raise(problems, "the command line")
        return layer

    def _take(self, layer: dict[tuple[str, str], Given], section: str, key: str, given: Given) -> bool:
        """Put a value into a layer, one with a former name only where the name itself is not given; return whether
        the section knows the key."""
        if key in self._fields[section]:
            layer[section, key] = given
            return True
        name = self._former[section].get(key)
        if name is None:
            return False
        present = layer.get((section, name))
        if present is None or present.former:
            layer[section, name] = replace(given, former=key)
        return True

    def converted(self, layer: Layer) -> dict[tuple[str, str], Any]:
        """Return (section, key) → value of the setting's type; raise ``ConfigError``. Builds no struct."""
        values: dict[tuple[str, str], Any] = {}
        problems: list[str] = []
        for (section, key), one in layer.items():
            kind = self._fields[section][key]
            try:
                values[section, key] = _convert(one, kind)
            except msgspec.ValidationError:
                value = HIDDEN if is_secret(kind) else repr(one.value)
                problems.append(f"{one.origin}: {section}.{key}={value} is not {expected_text(kind)}")
        _raise(problems, "settings")
        return values

    def merge(self, *layers: Layer) -> Settings:
        """Merge layers, the last one strongest, convert each value and build the structs; raise ``ConfigError``."""
        given: dict[tuple[str, str], Given] = {}
        for layer in layers:
            given.update(layer)
        renamed: list[str] = []
        values: dict[str, dict[str, Any]] = {section: {} for section in self._sections}
        for (section, key), one in given.items():
            if one.former:
                renamed.append(f"{one.origin}: {section}.{one.former} is now {section}.{key}")
                warn_renamed(f"{section}.{one.former}", f"{section}.{key}", stacklevel=2)
        for (section, key), value in self.converted(given).items():
            values[section][key] = value
        structs = {}
        for section, struct in self._sections.items():
            try:
                structs[section] = struct(**values[section])
            except ConfigError as error:
                places = sorted(
                    {one.origin for (owner, key), one in given.items() if owner == section and key in error.why}
                )
                why = f"{error.why} (given by {', '.join(places)})" if places else error.why
                raise ConfigError(error.what, why=why, hint=error.hint) from error
            except (ValueError, TypeError) as error:
                raise ConfigError(f"impossible settings in [{section}]", why=str(error)) from error
        return Settings(structs, {place: one.origin for place, one in given.items()}, renamed)

    def _suggest_key(self, section: str, key: str) -> str:
        """Suggest the intended name: a near name of the section, or the section that does have the key."""
        snake = snake_case(key)
        if snake in self._fields[section]:
            return f"; did you mean {snake!r}?"
        owners = [f"{owner}.{snake}" for owner, fields in self._fields.items() if snake in fields]
        if owners:
            return f"; did you mean {' or '.join(map(repr, owners))}?"
        other, _, rest = snake.partition("_")
        if rest and other in self._fields and other != section:
            return self._suggest_key(other, rest).replace("did you mean '", f"did you mean '{other}.", 1)
        near = [field for field in self._fields[section] if field.endswith(f"_{snake}")]
        near = near or difflib.get_close_matches(snake, self._fields[section], n=1, cutoff=0.6)
        if near:
            return f"; did you mean {' or '.join(map(repr, near[:3]))}?"
        return f"; see: pocketmq config show {section}"

    def _suggest_anywhere(self, key: str) -> str:
        snake = snake_case(key)
        names = {field for fields in self._fields.values() for field in fields}
        near = difflib.get_close_matches(snake, names, n=1, cutoff=0.6)
        if not near:
            return ""
        owners = [f"{section}.{near[0]}" for section, fields in self._fields.items() if near[0] in fields]
        return f"; did you mean {' or '.join(map(repr, owners))}?"

    def _suggest_section_for(self, key: str) -> str:
        owners = [section for section, fields in self._fields.items() if snake_case(key) in fields]
        if len(owners) == 1:
            return f"; it belongs in [{owners[0]}]"
        return f"; sections are {', '.join(f'[{section}]' for section in self._fields)}"


def is_secret(kind: object) -> bool:
    """Return whether values of this type of setting are never shown: its ``Meta`` says ``extra={"secret": True}``."""
    extras = [meta.extra or {} for meta in getattr(kind, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
    return any(extra.get("secret") for extra in extras)


def rocketmq_name(kind: type[msgspec.Struct], field: str) -> str:
    """Return how RocketMQ spells a setting; ``rocketmq_names`` of its struct has those that are not plain camel case.

    >>> class StoreConfig(msgspec.Struct):
    ...     rocketmq_names: typing.ClassVar[Mapping[str, str]] = {"check_crc_on_recover": "checkCRCOnRecover"}
    ...     check_crc_on_recover: bool = True
    >>> rocketmq_name(StoreConfig, "check_crc_on_recover")
    'checkCRCOnRecover'
    """
    names: Mapping[str, str] = getattr(kind, "rocketmq_names", {})
    return names.get(field) or camel_case(field)


def expected_text(kind: object) -> str:
    """Return in words the values that a setting of type ``kind`` takes.

    >>> expected_text(int), expected_text(typing.Literal["ASYNC_FLUSH", "SYNC_FLUSH"])
    ('a whole number', "'ASYNC_FLUSH' or 'SYNC_FLUSH'")
    """
    names: dict[object, str] = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text (in quotes in a file)",
    }
    if kind in names:
        return names[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " or ".join(repr(each) for each in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(expected_text(each) for each in arguments if each is not type(None))
    if origin is typing.Annotated:
        return expected_text(arguments[0])
    if origin in (list, tuple, set, frozenset):
        return f"a list of values, each {expected_text(arguments[0])}" if arguments else "a list of values"
    members: Sequence[object] = [each.value for each in getattr(kind, "__members__", {}).values()]
    return " or ".join(repr(each) for each in members) if members else str(getattr(kind, "__name__", kind))


def _convert(given: Given, kind: Any) -> object:
    """Convert one value; text of a flag that does not convert is tried once more as the TOML value it spells."""
    if not given.textual:
        return msgspec.convert(given.value, kind, strict=False, dec_hook=_from_text)
    assert isinstance(given.value, str)
    try:
        return msgspec.convert(given.value, kind, strict=False, dec_hook=_from_text)
    except msgspec.ValidationError:
        try:
            value = tomllib.loads(f"value = {given.value.strip()}")
        except (*DECODE_ERRORS, tomllib.TOMLDecodeError):
            value = {}
        if len(value) != 1:
            raise
        return msgspec.convert(value["value"], kind, strict=False, dec_hook=_from_text)


def _from_text(kind: type, value: object) -> object:
    """Convert to a type that msgspec does not know: a path."""
    if issubclass(kind, Path) and isinstance(value, str):
        return kind(value)
    raise msgspec.ValidationError(f"Expected `{kind.__name__}`")


def _nearest(name: str, names: Iterable[str]) -> str:
    names = list(names)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(names)}"


def _key_lines(text: str) -> dict[str, int]:
    """Return the line (from 1) of each section and of each ``section.key``; the first where the text repeats itself."""
    lines: dict[str, int] = {}
    prefix = ""
    for number, line in enumerate(text.splitlines(), 1):
        if match := _SECTION_LINE.match(line):
            section = match[1].strip("\"'")
            lines.setdefault(section, number)
            prefix = section + "."
        elif match := _KEY_LINE.match(line):
            key = match[1] or match[2] or match[3]
            lines.setdefault(prefix + key, number)
            lines.setdefault((prefix + key).partition(".")[0], number)
    return lines


def _raise(problems: Sequence[str], where: str) -> None:
    if not problems:
        return
    shown = problems[:_ERRORS_MAX]
    if len(problems) > _ERRORS_MAX:
        shown = [*shown, f"… and {len(problems) - _ERRORS_MAX} more"]
    what = "bad setting" if len(problems) == 1 else f"{len(problems)} bad settings"
    raise ConfigError(what if len(problems) == 1 else f"{what} in {where}", why="\n  ".join(shown))
