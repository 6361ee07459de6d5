"""What bounds the tables that a peer can fill.

    @bounded("locks", limit="count_max", size="count", unit="entries", setting="broker.queue_locks_max")
    class LockTable: ...

A class declares the bound of each table it keeps. ``declared_in`` finds the declarations, so that a test can fill every
table and no table is forgotten.

Lives here: ``Bound``, ``bounded``, ``bounds_of``, ``declared_in``.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from types import ModuleType
from typing import Any, Final, Literal, TypeVar

ClassT = TypeVar("ClassT", bound=type)

Unit = Literal["bytes", "entries"]
WhenFull = Literal["refuses", "evicts", "closes"]
"""Full: new entries are refused, old ones dropped, or the connection that fills it is closed."""

ATTRIBUTE: Final = "BOUNDS"


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound of one table. ``limit`` and ``size`` name attributes of the table's object, with dots between them, or
    ``limit`` is a constant.

    ``unit`` entries: ``entry_bytes`` is the most memory that one entry takes, its texts included. ``setting``: what an
    operator raises; empty where the limit is fixed.
    """

    name: str
    limit: str | int
    size: str
    unit: Unit
    when_full: WhenFull
    entry_bytes: int
    setting: str

    def limit_of(self, table: Any) -> int:
        """Return the limit of this object's table, in ``unit``."""
        return self.limit if isinstance(self.limit, int) else int(attrgetter(self.limit)(table))

    def size_of(self, table: Any) -> int:
        """Return how much this object's table holds now, in ``unit``."""
        value = attrgetter(self.size)(table)
        value = value() if callable(value) else value
        return value if isinstance(value, int) else len(value)


def bounded(
    name: str,
    *,
    limit: str | int,
    size: str,
    unit: Unit = "entries",
    when_full: WhenFull = "refuses",
    entry_bytes: int = 0,
    setting: str = "",
) -> Callable[[ClassT], ClassT]:
    """Declare a table of a class; a class with several tables has several. See ``Bound``."""
    assert (unit == "entries") is (entry_bytes > 0), name
    bound = Bound(name, limit, size, unit, when_full, entry_bytes, setting)

    def declare(owner: ClassT) -> ClassT:
        setattr(owner, ATTRIBUTE, (*bounds_of(owner), bound))
        return owner

    return declare


def bounds_of(owner: type) -> tuple[Bound, ...]:
    """Return the bounds that this class itself declares."""
    declared: tuple[Bound, ...] = vars(owner).get(ATTRIBUTE, ())
    return declared


def declared_in(package: ModuleType) -> Iterator[tuple[type, Bound]]:
    """Import every module of ``package``; yield each class that declares bounds, with each of them."""
    names = (each.name for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    values = [(module.__name__, value) for module in modules for value in vars(module).values()]
    owners = {value for name, value in values if isinstance(value, type) and value.__module__ == name}
    for owner in sorted(owners, key=lambda each: f"{each.__module__}.{each.__qualname__}"):
        yield from ((owner, bound) for bound in bounds_of(owner))
