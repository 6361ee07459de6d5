"""SQL92 filters: their meaning, and the errors of those that do not parse."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common import sql_filter
from pocketmq.common.sql_filter import COMPARISONS_MAX, DEPTH_MAX, EXPRESSION_LENGTH_MAX, FilterIllegal, compile_filter

PROPERTIES = {"a": "7", "b": "x", "c": "3.5", "t": "true", "ANDROID": "1", "q": "it's", "big": "9007199254740993"}


@pytest.mark.parametrize(
    "expression",
    [
        "a > 5",
        "a > 5 AND b = 'x'",
        "a>5and b='x'",
        "NOT (a < 5)",
        "z IS NULL",
        "a is not null",
        "b IN ('x', 'y')",
        "b NOT IN ('y')",
        "a BETWEEN 7 AND 9 AND c >= 3.5",
        "a NOT BETWEEN 8 AND 9",
        "t = TRUE",
        "t",
        "ANDROID = 1",
        "a <> 8",
        "b CONTAINS 'x' OR a = 1",
        "q STARTSWITH 'it' AND q ENDSWITH '''s'",
        "b NOT CONTAINS 'y'",
        "a > c",
        "-1 < a",
        "a = 7L",
        "c = 35e-1",
        "((a = 7))",
        "TRUE",
        "FALSE OR a = 7",
        "q = 'it''s'",
        "big > 9007199254740992",
        "z = 1 OR a = 7",
    ],
)
def test_what_matches(expression: str) -> None:
    """Each expression is true for the properties above."""
    assert compile_filter(expression).matches(PROPERTIES)


@pytest.mark.parametrize(
    "expression",
    [
        "z > 5",
        "NOT z > 5",
        "z <> 'x'",
        "z NOT IN ('x')",
        "b > 5",
        "NOT b > 5",
        "b = 5",
        "b",
        "a IS NULL",
        "a = 7 AND z = 1",
        "NOT (a = 7 AND z = 1)",
        "a > b",
        "B = 'x'",
        "c = TRUE",
    ],
)
def test_what_does_not_match(expression: str) -> None:
    """Each is false or unknown: only true matches, whatever stands around an unknown part."""
    assert not compile_filter(expression).matches(PROPERTIES)


@pytest.mark.parametrize(
    ("expression", "where", "hint"),
    [
        ("a >", "column 4: the end", "a number"),
        ("a > 'x'", "column 5: \"'x'\"", "a property"),
        ("a = NULL", "column 5: 'NULL'", "'text'"),
        ("a == 5", "column 4: '= 5'", "a number"),
        ("a LIKE 'x'", "column 3: \"LIKE 'x'\"", "BETWEEN"),
        ("a IN (1)", "column 7: '1)'", "'text'"),
        ("a = 'x", 'column 5: "\'x"', "'text'"),
        ("a > 5 b < 3", "column 7: 'b < 3'", "AND"),
        ("a = 1\nAND b = ", "line 2, column 9: the end", "'text'"),
        ("1e99999 = a", "column 1", ""),
        (";", "column 1: ';'", "a property"),
    ],
)
def test_errors_say_where_and_what_could_stand_there(expression: str, where: str, hint: str) -> None:
    """The text has the position, the word found, and the words that the grammar accepts there."""
    with pytest.raises(FilterIllegal) as caught:
        compile_filter(expression)
    assert where in caught.value.why
    assert hint in caught.value.hint
    assert caught.value.code == 23


def test_limits() -> None:
    """Length, depth and number of terms are bounded; filters within the limits are accepted."""
    deep = "(" * (DEPTH_MAX - 1) + "a = 7" + ")" * (DEPTH_MAX - 1)
    assert compile_filter(deep).matches(PROPERTIES)
    for wrong in (f"({deep})", "NOT " * 100 + "a = 7", "a" * (EXPRESSION_LENGTH_MAX + 1), "", "  "):
        with pytest.raises(FilterIllegal):
            compile_filter(wrong)
    nothing: Any = None
    with pytest.raises(FilterIllegal, match="no str"):
        compile_filter(nothing)
    wide = "a IN (" + ",".join("''" for _ in range(5000)) + ")"
    with pytest.raises(FilterIllegal, match="comparisons"):
        compile_filter(wide)


def test_the_work_for_one_message_is_bounded() -> None:
    """512 comparisons, and a list of values is one of them."""
    at_limit = compile_filter(" OR ".join(["a > 5"] * 510) + " OR b BETWEEN 1 AND 2")
    assert at_limit.comparisons == COMPARISONS_MAX
    with pytest.raises(FilterIllegal, match=r"512 comparisons.*is one comparison"):
        compile_filter(" OR ".join(["a > 5"] * 513))
    listed = compile_filter("a IN (" + ",".join(f"'{n}'" for n in range(1000)) + ")")
    assert (listed.comparisons, listed.matches({"a": "999"})) == (1, True)


# ---- a model: three-valued logic in twenty lines -------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "missing"])
LEAVES = st.one_of(
    st.tuples(st.just("cmp"), NAMES, st.sampled_from(["=", "<>", ">", ">=", "<", "<="]), st.integers(-5, 12)),
    st.tuples(st.just("null"), NAMES),
    st.tuples(st.just("in"), NAMES, st.lists(st.sampled_from(["7", "x", "3"]), min_size=1, max_size=3)),
)
TREES: Any = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
    ),
    max_leaves=8,
)


def text_of(tree: Any) -> str:
    kind = tree[0]
    if kind == "cmp":
        return f"{tree[1]} {tree[2]} {tree[3]}"
    if kind == "null":
        return f"{tree[1]} IS NULL"
    if kind == "in":
        values = ", ".join(f"'{value}'" for value in tree[2])
        return f"{tree[1]} IN ({values})"
    if kind == "not":
        return f"NOT ({text_of(tree[1])})"
    return f"({text_of(tree[1])}) {kind} ({text_of(tree[2])})"


def value_of(tree: Any, properties: dict[str, str]) -> bool | None:
    kind = tree[0]
    if kind == "cmp":
        text = properties.get(tree[1])
        if text is None or not text.lstrip("-").isdecimal():
            return None
        left, right = int(text), tree[3]
        signs = {"=": left == right, "<>": left != right, ">": left > right, ">=": left >= right, "<": left < right}
        return bool(signs.get(tree[2], left <= right))
    if kind == "null":
        return bool(tree[1] not in properties)
    if kind == "in":
        return bool(properties[tree[1]] in tree[2]) if tree[1] in properties else None
    if kind == "not":
        value = value_of(tree[1], properties)
        return None if value is None else not value
    values = {value_of(tree[1], properties), value_of(tree[2], properties)}
    decides = kind == "or"
    return decides if decides in values else None if None in values else not decides


@pytest.mark.slow
@given(TREES, st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(["7", "x", "3", "-2", ""])))
def test_filters_mean_what_the_model_means(tree: Any, properties: dict[str, str]) -> None:
    """This holds for any expression and any properties."""
    assert compile_filter(text_of(tree)).matches(properties) is (value_of(tree, properties) is True)


@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(
            st.sampled_from(
                ["a", "b", "'x'", "5", "(", ")", "=", "<>", ">", "AND", "OR", "NOT", "IN", "BETWEEN", "IS"]
            ),
            max_size=12,
        ).map(" ".join),
    ),
    st.dictionaries(st.text(max_size=3), st.text(max_size=8), max_size=3),
)
def test_any_text_is_a_filter_or_is_refused(expression: str, properties: dict[str, str]) -> None:
    """No other error is raised, and a filter answers for any properties."""
    with contextlib.suppress(FilterIllegal):
        assert compile_filter(expression).matches(properties) in (True, False)


def test_few_long_expressions_are_kept() -> None:
    """One takes 2 MiB when compiled: a client with a thousand of them must not fill the broker's memory."""
    for number in range(20):
        compile_filter(f"{'a = 1 OR ' * 40} b = {number}")
    kept = sql_filter._long.cache_info()
    assert kept.maxsize is not None
    assert kept.currsize <= kept.maxsize <= 16
