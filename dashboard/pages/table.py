"""Long lists, a page at a time: what is searched for, the order, the part.

Lives here: ``Wanted``, ``Part``, ``part_of``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

ROWS: Final = 25
PAGES_MAX: Final = 100_000
TEXT_MAX: Final = 255

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks of a list: the text to find, the column to sort by, the page from 1, further filters."""

    text: str = ""
    sort: str = ""
    page: int = 1
    kind: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Wanted":
        """Read a query string."""
        page = query.get("page", "1")
        number = int(page) if page.isascii() and page.isdigit() and len(page) < 7 else 1
        text, sort = query.get("q", "")[:TEXT_MAX], query.get("sort", "")[:TEXT_MAX]
        return cls(text, sort, min(max(number, 1), PAGES_MAX), query.get("kind", "")[:16])

    def query(self, **changes: object) -> str:
        """Return the query string with some values changed."""
        values = {"q": self.text, "sort": self.sort, "page": self.page, "kind": self.kind, **changes}
        return urlencode({name: value for name, value in values.items() if value not in ("", 1, "1")})


@dataclass(frozen=True, slots=True)
class Part(Generic[_T]):
    """The rows of one page. ``total``: rows of all pages."""

    rows: Sequence[_T]
    total: int
    wanted: Wanted

    @property
    def pages(self) -> int:
        """How many pages there are, at least one."""
        return max(1, -(-self.total // ROWS))

    @property
    def page(self) -> int:
        """The page that is shown."""
        return min(self.wanted.page, self.pages)


def part_of(
    rows: Iterable[_T], wanted: Wanted, name: Callable[[_T], str], orders: Mapping[str, Callable[[_T], Any]]
) -> Part[_T]:
    """Return the rows of the wanted page whose name contains the text, in the wanted order.

    ``orders``: column → key; the first is the order without a wish, ``name`` breaks ties.
    """
    text = wanted.text.lower()
    found = [row for row in rows if text in name(row).lower()] if text else list(rows)
    key = orders.get(wanted.sort) or next(iter(orders.values()))
    found.sort(key=lambda row: (key(row), name(row)))
    first = (min(wanted.page, max(1, -(-len(found) // ROWS))) - 1) * ROWS
    return Part(found[first : first + ROWS], len(found), wanted)
