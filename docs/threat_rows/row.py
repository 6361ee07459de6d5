"""A row of docs/threats.md, and the checks of what it names.

Lives here: ``Row``, ``Quiet``, ``names_of``.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One threat. ``of``: what it is about, as docs/threat_rows/scan.py names it: ``path name name; path name``.

    ``stranger``: what somebody who reaches the port could do with it. ``bound``: what keeps that small. ``tests``: the
    tests that show the bound, ``path::name path::name``. ``declares``: the names of the ``@bounded`` declarations that
    the row is about, with ``; `` between them.
    """

    of: str
    stranger: str
    bound: str
    tests: str
    declares: str = ""


@dataclass(frozen=True, slots=True)
class Quiet:
    """What no peer can fill or reach, with the reason. In ``of`` a name may be ``*``, and a path may end in ``/*``."""

    of: str
    reason: str


def names_of(of: str) -> list[str]:
    """Return the single names of ``of``, each with its path: ``path name``; a path without names stands for itself."""
    found = []
    for part in of.split(";"):
        path, *names = part.split()
        found += [f"{path} {name}" for name in names] if names else [path]
    return found
