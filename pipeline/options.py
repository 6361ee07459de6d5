"""Options of the formats.

Lives here: ``Options``, which reads and checks Spark's map of strings.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.pipeline.errors import OptionIllegal

SPARK_OPTIONS: Final = frozenset({"path", "checkpointlocation", "queryname", "outputmode", "mode", "header"})
"""Options that Spark itself adds."""
OF_KAFKA: Final = {
    "kafka.bootstrap.servers": "namesrv, the name servers: host:port;host:port",
    "kafka.group.id": "group",
    "groupidprefix": "group",
    "includeheaders": "includeProperties",
    "kafkaconsumer.polltimeoutms": "brokerWaitMs",
    "topic": "subscribe",
}
"""Options of Spark's Kafka source → what they are called here."""
UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d{1,12})\s*([a-z]*)")
TRUE: Final = frozenset({"true", "1", "yes"})
FALSE: Final = frozenset({"false", "0", "no"})


class Options:
    """The options of one read or write. Names are case-insensitive, as everywhere in Spark.

    Raises ``OptionIllegal`` for a name that is not in ``known``, with the nearest known name.
    """

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        names = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        for name, value in given.items():
            lower = name.lower()
            if lower in names:
                self._values[lower] = value
            elif lower == "path" and ":" not in value:  # catalogs of Spark add one: file:/…/spark-warehouse/…
                raise OptionIllegal(
                    "bad option",
                    why=f"the path {value!r} means nothing here",
                    hint="name topics with the option subscribe (to read) or topic (to write); pocketmq-log reads a "
                    "store's directory",
                )
            elif lower not in SPARK_OPTIONS:
                near = difflib.get_close_matches(lower, names, n=1, cutoff=0.5)
                hint = f"did you mean {names[near[0]]}?" if near else "known: " + ", ".join(sorted(names.values()))
                if lower in OF_KAFKA:
                    hint = f"here it is {OF_KAFKA[lower]}"
                elif lower.startswith("kafka."):
                    hint = "there is no Kafka here; known: " + ", ".join(sorted(names.values()))
                raise OptionIllegal("unknown option", why=name, hint=hint)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str, default: str | None = None) -> str:
        """Return an option's text; without ``default`` it must be given."""
        value = self._values.get(name.lower(), default)
        if value is None or (default is None and not value.strip()):
            raise OptionIllegal("option missing", why=name, hint=f'.option("{name}", …)')
        return value.strip()

    def number(self, name: str, default: int, low: int = 0, high: int = (1 << 63) - 1) -> int:
        """Return a whole number from ``low`` to ``high``."""
        text = self._values.get(name.lower())
        if text is None:
            return default
        try:
            value = int(text.strip())
        except ValueError:
            raise OptionIllegal("bad option", why=f"{name}={text!r} is no whole number") from None
        if not low <= value <= high:
            raise OptionIllegal("bad option", why=f"{name}={value} is not {low} to {high}")
        return value

    def duration_ms(self, name: str, default_ms: int) -> int:
        """Return a time span in ms: ``500ms``, ``30s``, ``15m``, ``1h``, ``1d``, or a number of ms."""
        text = self._values.get(name.lower())
        if text is None:
            return default_ms
        match = _DURATION.fullmatch(text.strip().lower())
        unit_ms = UNITS_MS.get((match[2] or "ms") if match else "")
        if match is None or unit_ms is None:
            raise OptionIllegal("bad option", why=f"{name}={text!r} is no time span", hint="500ms, 30s, 15m, 1h")
        return int(match[1]) * unit_ms

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        text = self._values.get(name.lower())
        if text is None:
            return default
        word = text.strip().lower()
        if word not in TRUE | FALSE:
            raise OptionIllegal("bad option", why=f"{name}={text!r}", hint="true or false")
        return word in TRUE

    def table(self, name: str) -> dict[str, Any]:
        """Return a JSON object."""
        text = self.text(name)
        try:
            value = json.loads(text)
        except (*DECODE_ERRORS, ValueError) as error:
            raise OptionIllegal("bad option", why=f"{name} is no JSON: {error}") from error
        if not isinstance(value, dict):
            raise OptionIllegal("bad option", why=f"{name} is no JSON object", hint='{"topic": …}')
        return value

    def exactly_one(self, *names: str) -> str:
        """Return the one of these options that is given; raise for none or several."""
        found = [name for name in names if name in self]
        if len(found) != 1:
            what = "none of them" if not found else " and ".join(found)
            raise OptionIllegal("bad options", why=f"{what} given", hint="give one of " + ", ".join(names))
        return found[0]

    def at_most_one(self, *names: str) -> str | None:
        """Return the one of these options that is given, None without; raise for several."""
        found = [name for name in names if name in self]
        if len(found) > 1:
            raise OptionIllegal("bad options", why=" and ".join(found) + " contradict each other", hint="give one")
        return found[0] if found else None
