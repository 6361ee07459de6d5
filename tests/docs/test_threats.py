"""docs/threats.md has a row for each request code, decoder, table, path, task and number, and each test it names.

The code is read by docs/threat_rows/scan.py; its rules are held here on small examples, so that nothing slips through.
"""

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from docs.threat_rows import scan
from docs.threat_rows.page import SECTIONS, Section
from docs.threat_rows.row import Quiet, Row, names_of
from docs.threat_rows.tables import TABLES


@pytest.fixture(scope="module", autouse=True)
def trees_are_forgotten() -> Iterator[None]:
    """Free the syntax trees of the whole code when the last test here has used them."""
    yield
    scan.forget()


@cache
def functions_of(path: str) -> frozenset[str]:
    file = scan.ROOT / path
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text())
    return frozenset(each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("name", SECTIONS)
def test_everything_has_its_row_or_its_reason(name: str) -> None:
    """A new request code, decoder, container, path, task or number needs a row; see docs/threat_rows."""
    assert SECTIONS[name].missing() == set(), f"give these a row in {name}, or a reason why no peer reaches them"


@pytest.mark.parametrize("name", SECTIONS)
def test_what_has_a_row_exists_and_has_one(name: str) -> None:
    """A row outlives nothing; what has a reason to be left out has no row."""
    assert SECTIONS[name].gone() == set()
    assert SECTIONS[name].twice() == set()


@pytest.mark.parametrize("name", SECTIONS)
def test_each_row_names_tests_that_exist(name: str) -> None:
    for row in SECTIONS[name].rows:
        assert row.tests, row.of
        for test in row.tests.split():
            path, _, function = test.partition("::")
            assert path.startswith("tests/"), test
            assert function.startswith("test_"), test
            assert function in functions_of(path), f"{test} does not exist"


@pytest.mark.parametrize("name", SECTIONS)
def test_each_row_and_each_reason_says_something(name: str) -> None:
    for row in SECTIONS[name].rows:
        assert min(len(row.stranger) // 2, len(row.bound)) > 8, row.of
    assert all(len(quiet.reason) > 8 for quiet in SECTIONS[name].quiet)


def test_each_declared_bound_has_a_row() -> None:
    """A row names the declaration, a table of the class that makes it, and the setting that raises it."""
    rows = {name: row for row in TABLES if row.declares for name in row.declares.split("; ")}
    declared = scan.declared()
    assert sorted(rows) == sorted(name for row in TABLES if row.declares for name in row.declares.split("; "))
    assert sorted(rows) == sorted(each.name for each in declared)
    for each in declared:
        row = rows[each.name]
        assert any(name.startswith(f"{each.owner}.") for name in names_of(row.of)), each
        assert each.setting.rpartition(".")[2] in row.bound, each


def test_a_declared_bound_is_seen() -> None:
    """With a setting and without one, several of one class, and under another decorator."""
    text = '@bounded("a", limit=1, size="x", setting="broker.a_max")\n@bounded("b", limit=2, size="y")\n'
    tree = ast.parse(f"{text}@dataclass\nclass C: ...\n@other('c')\nclass D: ...\n")
    assert list(scan._declarations("p.py", tree)) == [
        scan.Declared("a", "p.py C", "broker.a_max"),
        scan.Declared("b", "p.py C", ""),
    ]


def test_the_scan_sees_what_it_should() -> None:
    """An empty scan would hold everything."""
    assert len(scan.declared()) >= 25
    least = {
        "threats-codes": 120,
        "threats-decoders": 90,
        "threats-tables": 450,
        "threats-paths": 30,
        "threats-tasks": 90,
        "threats-numbers": 45,
        "threats-clocks": 60,
    }
    assert {name: len(section.found()) >= least[name] for name, section in SECTIONS.items()} == dict.fromkeys(
        least, True
    )


CLASS = """
class Table:
    {}
    def __init__(self, given: dict[str, int]) -> None:
        {}
"""


def attributes(in_class: str, in_method: str) -> set[str]:
    (owner,) = ast.parse(CLASS.format(in_class, in_method)).body
    assert isinstance(owner, ast.ClassDef)
    return set(scan._attributes(owner))


@pytest.mark.parametrize(
    "line",
    [
        "self.a: dict[str, int] = {}",
        "self.a: 'dict[str, int]' = make()",
        "self.a: Final[deque[int]] = deque()",
        "self.a: collections.OrderedDict[str, int] | None = None",
        "self.a = {}",
        "self.a = []",
        "self.a = set()",
        "self.a = collections.defaultdict(list)",
        "self.a = [0] * 7",
        "self.a = [x for x in y]",
        "self.a = {} if x else None",
        "self.a = given",
        "self.a = given or {}",
        "self.a = bytearray()",
        "self.a = asyncio.Queue()",
        "self.a = weakref.WeakSet()",
        "self.b = self.a = {}",
    ],
)
def test_a_container_of_an_object_is_seen(line: str) -> None:
    assert "a" in attributes("pass", line)


@pytest.mark.parametrize(
    "line",
    ["a: dict[str, int]", "a: list[int] = field(default_factory=list)", "a = {}", "a: ClassVar[set[int]] = set()"],
)
def test_a_container_of_a_class_is_seen(line: str) -> None:
    assert "a" in attributes(line, "pass")


@pytest.mark.parametrize(
    "line", ["self.a = 7", "self.a: int = 0", "self.a: tuple[int, ...] = ()", "a: dict[str, int] = {}"]
)
def test_what_does_not_grow_is_no_table(line: str) -> None:
    assert attributes("pass", line) == set()


def test_a_frozen_value_holds_what_was_made_before_it() -> None:
    (owner,) = ast.parse("class V(Struct, frozen=True):\n    a: dict[str, int]\n").body
    assert isinstance(owner, ast.ClassDef)
    assert list(scan._attributes(owner)) == []


def test_a_section_tells_what_is_missing_gone_and_twice() -> None:
    """A row names ``path name``; a reason may use ``*``."""
    rows = [Row("a.py X.a X.b", "", "", ""), Row("b.py X.gone", "", "", "")]
    section = Section(lambda: {"a.py X.a", "a.py X.b", "c/d.py Y.e", "a.py new"}, rows, [Quiet("c/* *; a.py X.b", "")])
    assert section.missing() == {"a.py new"}
    assert section.gone() == {"b.py X.gone"}
    assert section.twice() == {"a.py X.b"}
