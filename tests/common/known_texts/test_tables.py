"""The tables of known texts: complete, told apart, and right about pages and scenarios."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.cli.scenario.catalog import CATALOG
from pocketmq.client import errors as client_errors
from pocketmq.client.durable import errors as durable_errors
from pocketmq.common import errors as common_errors
from pocketmq.common.errors import Cause, Stored
from pocketmq.common.known_texts.codes import CODES, Code
from pocketmq.common.known_texts.sdk import SDK_CLASS_ROWS
from pocketmq.common.known_texts.search import KNOWN_ROWS, index
from pocketmq.common.refusal_row import Request, Row, Side
from pocketmq.common.refusals import REFUSALS
from pocketmq.remoting import errors as remoting_errors
from pocketmq.remoting.codes import ResponseCode

ROOT = Path(__file__).resolve().parents[3]
EVERY_ROW = (*KNOWN_ROWS, *REFUSALS.values())
ROWS = pytest.mark.parametrize("row", EVERY_ROW, ids=lambda row: row.name)


def headings(page: str) -> Iterator[str]:
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            text = re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower())
            yield text.replace(" ", "-")


@ROWS
def test_a_row_says_what_why_and_what_to_do(row: Row) -> None:
    """In sentences that fit the places where they are shown."""
    assert row.what
    assert not row.what.endswith(".")
    assert row.why.endswith(".")
    assert row.cure.endswith((".", "?"))
    assert not row.price or row.price.endswith(".")
    assert not row.retried.endswith(".")
    assert not any(bad.endswith(".") for bad in row.bad_cures)
    assert row.scenario == "" or row.scenario in {scenario.name for scenario in CATALOG}


@ROWS
def test_the_page_of_a_row_exists(row: Row) -> None:
    page, _, heading = row.page.partition("#")
    assert (ROOT / page).is_file()
    assert not heading or heading in set(headings(page))


@pytest.mark.parametrize("row", KNOWN_ROWS, ids=lambda row: row.name)
def test_a_row_of_rocketmqs_texts_has_a_name_and_a_source(row: Row) -> None:
    """Texts of the system below have no class of RocketMQ."""
    assert row.key
    assert row.texts
    assert row.source or all(text.by is Side.SYSTEM for text in row.texts)


def test_names_are_unique_and_none_is_that_of_a_cause() -> None:
    names = [row.name for row in KNOWN_ROWS]
    assert len(names) == len(set(names))
    assert not set(names) & {cause.value for cause in Cause} - {"none"}


def test_each_text_is_in_one_row_of_its_own() -> None:
    """Only the causes share texts: their field beside the text tells them apart."""
    texts = [text.template for row in KNOWN_ROWS for text in row.texts]
    assert len(texts) == len(set(texts))


def test_every_text_is_filed() -> None:
    """Each has a word to be found by, and a text of a cause that says nothing of its own is explained by its row."""
    by_word, every = index()
    assert {known.text.template for known in every} == {
        known.text.template for each in by_word.values() for known in each
    }
    assert {text.template for row in EVERY_ROW for text in row.texts} == {known.text.template for known in every}


def test_statuses_of_stored_messages_say_yes() -> None:
    """FLUSH_DISK_TIMEOUT and its like are not refusals."""
    stored = {code.number for code in CODES if code.stored is Stored.YES}
    assert {10, 11, 12} <= stored
    for row in KNOWN_ROWS:
        for text in row.texts:
            if text.request is Request.SEND and text.code in (10, 11, 12):
                assert row.stored is Stored.YES, text.template


@pytest.mark.parametrize("code", ResponseCode)
def test_every_response_code_has_a_meaning(code: ResponseCode) -> None:
    found = [each for each in CODES if each.name == code.name]
    assert [each.number for each in found] == [code.value]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_a_meaning_is_a_sentence(code: Code) -> None:
    assert code.what.endswith(".")
    assert code.of_client == (code.number > 10_000)


def test_the_classes_of_the_sdk_exist() -> None:
    """A class that has another name now would never be found; one without a row is known by its module at least."""
    modules = (client_errors, durable_errors, remoting_errors, common_errors)
    named = {
        name[1]
        for row in KNOWN_ROWS
        for text in row.texts
        for name in [re.fullmatch(r"errors\.(\w+)%s", text.template)]
        if name is not None
    }
    assert named
    assert [each for each in named if not any(hasattr(module, each) for module in modules)] == []
    prefixes = [text.template.removesuffix("%s") for row in SDK_CLASS_ROWS for text in row.texts]
    assert all(f"{module.__name__}." in prefixes for module in modules)
