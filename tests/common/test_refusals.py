"""The table of refusals is complete and consistent, and its texts are found in a client's exceptions."""

import pytest

from pocketmq.common.errors import Cause, Stored
from pocketmq.common.refusals import CLIENTS_OWN, REFUSALS, Fault, Retry, Row, Text, find, retried_by

EVERY_TEXT = [(row, text) for row in REFUSALS.values() for text in row.texts]


def test_every_cause_has_its_row() -> None:
    """Each has one, under its own name."""
    assert set(REFUSALS) == set(Cause)
    assert all(row.cause is cause for cause, row in REFUSALS.items())


@pytest.mark.parametrize("row", REFUSALS.values(), ids=lambda row: row.cause.value)
def test_every_row_says_what_why_and_what_to_do(row: Row) -> None:
    """Each row has sentences; a refusal may have stored nothing, or this is unknown: a stored message is no refusal."""
    assert row.what
    assert not row.what.endswith(".")
    assert row.why.endswith(".")
    assert row.cure.endswith((".", "?"))
    assert row.stored in (Stored.NO, Stored.UNKNOWN)
    assert not any(bad.endswith(".") for bad in row.bad_cures)
    assert row.retry_after.ms_min <= row.retry_after.ms_max
    assert row.codes or row.cause in (Cause.CONNECTION_LIMIT, Cause.CONFIG)


@pytest.mark.parametrize(("row", "text"), EVERY_TEXT, ids=lambda each: each.template if isinstance(each, Text) else "")
def test_every_text_is_found_in_an_exception_and_names_its_cause(row: Row, text: Text) -> None:
    """With real names and numbers, and with the text that RocketMQ's clients write around it."""
    filled = text.template.replace("%s", "x1").replace("%d", "17")
    found = list(find(f"CODE: {text.code}  DESC: {filled}"))
    assert row in [match.row for match in found]
    assert {match.text.template for match in found if match.text is not None} == {text.template}
    assert len(found[0].values) == text.template.count("%")
    assert set(found[0].values) <= {"x1", "17"}


def test_one_text_of_two_causes_finds_both() -> None:
    """[REJECTREQUEST] has three; only the cause beside it distinguishes them."""
    found = find("MQBrokerException: CODE: 2 DESC: [REJECTREQUEST]system busy, start flow control for a while")
    assert [match.row.cause for match in found] == [Cause.PAGE_CACHE_BUSY, Cause.NO_WRITE_BUFFER, Cause.NOT_MASTER]


def test_codes_and_names_of_causes_are_found() -> None:
    """A client's log shows them beside the text; other words find nothing."""
    assert Cause.QUEUE_FULL in {match.row.cause for match in find("2")}
    assert [match.row.cause for match in find("timer_congested")] == [Cause.TIMER_CONGESTED]
    assert [match.values for match in find("timer message is under flow control, max num limit is 50 for one second")]
    assert list(find("all is well")) == []
    assert list(find("")) == []


def test_who_tries_again() -> None:
    """RocketMQ 4.9 gives up at SYSTEM_BUSY, 5.3 and PocketMQ do not; an illegal message is never sent again."""
    assert retried_by(2) == (Retry.ROCKETMQ_5_3, Retry.POCKETMQ)
    assert len(retried_by(14)) == 3
    assert retried_by(13) == ()


def test_a_client_s_mistakes() -> None:
    """They are logged at level info and cause no incident."""
    assert {"bad_request", "codec", "no_permission", "no_route", "quota"} == CLIENTS_OWN
    assert all(REFUSALS[Cause(each)].fault is Fault.CLIENT for each in CLIENTS_OWN)
