"""The tables of docs/threats.md, made of the rows.

Lives here: ``SECTIONS`` (what the code has, the rows, what is left out with its reason), ``tables``.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Final

from docs.threat_rows import scan
from docs.threat_rows.clocks import CLOCKS
from docs.threat_rows.codes import CODES
from docs.threat_rows.decoders import DECODERS, QUIET_DECODERS
from docs.threat_rows.numbers import NUMBERS
from docs.threat_rows.paths import PATHS, QUIET_PATHS
from docs.threat_rows.quiet import QUIET_TABLES
from docs.threat_rows.row import Quiet, Row, names_of
from docs.threat_rows.tables import TABLES
from docs.threat_rows.tasks import QUIET_TASKS, TASKS


@dataclass(frozen=True, slots=True)
class Section:
    """One table of the page. ``found``: what the code has; ``split``: the single names of a row."""

    found: Callable[[], set[str]]
    rows: Sequence[Row]
    quiet: Sequence[Quiet] = ()
    split: Callable[[str], list[str]] = names_of

    def missing(self) -> set[str]:
        """Return what the code has and neither a row nor a reason names."""
        return {name for name, count in self._counts().items() if not count}

    def twice(self) -> set[str]:
        """Return what is named more than once."""
        return {name for name, count in self._counts().items() if count > 1}

    def gone(self) -> set[str]:
        """Return what is named and the code has not."""
        found = self.found()
        return {known for known in self._known() if not (known in found or any(fnmatchcase(n, known) for n in found))}

    def _counts(self) -> dict[str, int]:
        """Return how often each thing of the code is named."""
        known = self._known()
        exact, patterns = Counter(known), [each for each in known if "*" in each]
        return {name: exact[name] + sum(fnmatchcase(name, pattern) for pattern in patterns) for name in self.found()}

    def _known(self) -> list[str]:
        texts = [*(row.of for row in self.rows), *(each.of for each in self.quiet)]
        return [name for text in texts for name in self.split(text)]


SECTIONS: Final[Mapping[str, Section]] = {
    "threats-codes": Section(scan.codes, CODES, split=str.split),
    "threats-decoders": Section(scan.decoders, DECODERS, QUIET_DECODERS),
    "threats-tables": Section(scan.tables, TABLES, QUIET_TABLES),
    "threats-paths": Section(scan.paths, PATHS, QUIET_PATHS),
    "threats-tasks": Section(scan.tasks, TASKS, QUIET_TASKS),
    "threats-numbers": Section(scan.numbers, NUMBERS, split=str.split),
    "threats-clocks": Section(scan.clocks, CLOCKS),
}


def _table(section: Section, page: str) -> str:
    head = ["| what | a stranger could | what bounds it | shown by |", "|---|---|---|---|"]
    return "\n".join([*head, *(_line(row) for row in section.rows)]) + "\n"


def _line(row: Row) -> str:
    parts = []
    for part in row.of.split(";"):
        path, *names = part.split()
        is_path = path.endswith(".py")
        shown = names if is_path else [path, *names]
        parts.append((f"`{path}`: " if names and is_path else f"`{path}`" if is_path else "") + _ticked(shown))
    tests = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in row.tests.split())
    cells = ["<br>".join(part.strip() for part in parts), row.stranger, row.bound, tests]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _ticked(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def tables() -> dict[str, Callable[[str], str]]:
    """Return the tables for ``docs/tables.py``."""
    return {name: partial(_table, section) for name, section in SECTIONS.items()}
