"""``--quota NAME=VALUE`` of ``pocketmq user``: what one user may have in place of the settings in ``[limits]``.

Lives here: ``parse_limits``, ``limits_text``, ``LIMIT_HELP``.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from pocketmq.common.errors import ConfigError

FIELDS: Final[Mapping[str, str]] = {
    "bytes_in": "bytes_in_per_second",
    "messages_in": "messages_in_per_second",
    "bytes_out": "bytes_out_per_second",
    "messages_out": "messages_out_per_second",
    "connections": "connections_max",
    "topics": "topics_max",
    "groups": "groups_max",
}
"""Name of a limit on the command line → its field on the wire."""
AS_THE_SETTINGS_SAY: Final = -1
LIMIT_HELP: Final = (
    f"NAME: {', '.join(FIELDS)} (bytes and messages a second). VALUE: a number, like 500 or 10MiB; none; or "
    "default, as the server's settings say. Repeatable."
)
_VALUE: Final = re.compile(r"(\d{1,16})([KMG]i?B?)?")
_UNITS: Final = {"": 1, "K": 10**3, "Ki": 1 << 10, "M": 10**6, "Mi": 1 << 20, "G": 10**9, "Gi": 1 << 30}


def parse_limits(given: Sequence[str]) -> dict[str, int]:
    """Return the limits of the options by their fields. Raise ``ConfigError``."""
    limits: dict[str, int] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in FIELDS:
            raise ConfigError("bad option", why=f"--quota {text}: there is no limit {name!r}", hint=", ".join(FIELDS))
        limits[FIELDS[name]] = _number(text, value)
    return limits


def _number(text: str, value: str) -> int:
    if value == "none":
        return 0
    if value == "default":
        return AS_THE_SETTINGS_SAY
    match = _VALUE.fullmatch(value)
    if match is None:
        raise ConfigError("bad option", why=f"--quota {text}: {value!r} is no number", hint="like bytes_in=10MiB")
    return int(match[1]) * _UNITS[(match[2] or "").removesuffix("B")]


def limits_text(limits: Mapping[str, int] | None) -> str:
    """Return limits as they are given on the command line, empty if there are none."""
    names = {field: name for name, field in FIELDS.items()}
    return " ".join(f"{names.get(field, field)}={value or 'none'}" for field, value in (limits or {}).items())
