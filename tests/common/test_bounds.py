"""Declared bounds are found, and read the limit and the size of a table's object."""

import pocketmq.broker
from pocketmq.broker.group.client_table import ClientTable
from pocketmq.common.bounds import Bound, bounded, bounds_of, declared_in


@bounded("names", limit="names_max", size="names", entry_bytes=100, when_full="evicts", setting="broker.names_max")
@bounded("texts", limit=1000, size="size_bytes", unit="bytes")
class Table:
    """Two tables in one object."""

    def __init__(self) -> None:
        self.names_max = 3
        self.names = ["a", "b"]

    def size_bytes(self) -> int:
        """Return a number, as a method does."""
        return 2


def test_a_class_declares_each_of_its_tables() -> None:
    """The declarations stand in the class, and say where limit and size are."""
    texts, names = bounds_of(Table)
    table = Table()
    assert (names.limit_of(table), names.size_of(table), names.when_full) == (3, 2, "evicts")
    assert (texts.limit_of(table), texts.size_of(table), texts.unit) == (1000, 2, "bytes")


def test_a_subclass_declares_its_own() -> None:
    """What a base class declares is not counted twice."""

    @bounded("more", limit=1, size="names", entry_bytes=1)
    class More(Table):
        """One table more."""

    assert [bound.name for bound in bounds_of(More)] == ["more"]


def test_the_declarations_of_a_package_are_found() -> None:
    """Every module is looked at, and each class once."""
    found = list(declared_in(pocketmq.broker))
    assert any(owner is ClientTable and isinstance(bound, Bound) for owner, bound in found)
    assert len(found) == len({(owner, bound.name) for owner, bound in found})
