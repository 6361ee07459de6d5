"""Java's property files: read as java.util.Properties reads them (the pairs below are what Java 17 returned)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pocketmq.common.errors import ConfigError
from pocketmq.common.java_properties import looks_like_properties, read_properties, write_properties


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("namesrvAddr=a\\:9876;b\\:9876\n", {"namesrvAddr": "a:9876;b:9876"}),
        ("a=1\\\n    2\\\n\t3\nb=4", {"a": "123", "b": "4"}),
        ("# a=1\n ! b=2\n\t\f c = 3", {"c": "3"}),
        ("a:1\nb 2\nc\t=\t3\nd = : 4\ne", {"a": "1", "b": "2", "c": "3", "d": ": 4", "e": ""}),
        ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        ("a=\\u00e9\\t\\n\\q\\\\", {"a": "é\t\nq\\"}),
        ("a=1\r\nb=2\rc=3\n\n", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=x=y:z", {"a": "x=y:z"}),
        ("a=1\\\n# no comment\nb=2", {"a": "1# no comment", "b": "2"}),
        ("\\\n!bC=1\na=2", {"a": "2"}),
        ("a=1\na=2", {"a": "2"}),
        ('a="q"  \n', {"a": '"q"'}),
    ],
)
def test_texts_are_read_as_java_reads_them(text: str, pairs: dict[str, str]) -> None:
    assert {one.key: one.value for one in read_properties(text, "f")} == pairs


def test_lines_are_counted_from_the_line_of_the_key() -> None:
    text = "\ufeff# head\na=1\\\n 2\\\n 3\n\nb=4\n"
    assert [(one.key, one.line) for one in read_properties(text, "f")] == [("a", 2), ("b", 6)]


@pytest.mark.parametrize("text", ["\na=\\u12", "\n\\uxyzw=1", "\na=\\u"])
def test_half_an_escape_is_named_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError, match=r"broker\.conf line 2: .* is no character"):
        read_properties(text, "broker.conf")


@pytest.mark.parametrize(
    ("text", "is_properties"),
    [
        ("listenPort=10911", True),
        ("# [store]\n  brokerName : a", True),
        ("[broker]\nlistenPort = 10911", False),
        ("broker.listen_port = 1", False),
        ("listen_port = 1", False),
        ("", False),
    ],
)
def test_only_camel_case_without_sections_is_rocketmqs(text: str, is_properties: bool) -> None:
    assert looks_like_properties(text) is is_properties


@given(st.text(alphabet="aB=: \t\f\\#!\n\ru0041é", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        lines = [one.line for one in read_properties(text, "f")]
    except ConfigError:
        return
    assert lines == sorted(set(lines))


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8)))
@example({"log.level": "info\nbrokerPermission=0", "a": "b\\", "#x": " y", "k=": ":"})
def test_what_is_written_is_what_is_read(settings: dict[str, str]) -> None:
    """No value becomes another setting; only blanks at the end of a value are lost."""
    read = read_properties(write_properties(settings), "x")
    assert {each.key: each.value for each in read} == {name: value.rstrip() for name, value in settings.items()}
