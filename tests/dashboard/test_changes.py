"""What a dashboard changes when it may: forms, their tokens, and what they do at the broker."""

import asyncio
import re

import httpx
import pytest

from pocketmq.client import Admin
from pocketmq.testing import PocketBroker
from tests.dashboard.serving import Served, text_of, token_of


@pytest.fixture
def browser(writing: Served) -> httpx.Client:
    return writing.client()


def token(browser: httpx.Client, path: str = "/topics/orders") -> str:
    return token_of(browser.get(path))


def test_a_message_is_published(browser: httpx.Client) -> None:
    fields = {
        "token": token(browser),
        "body": "<b>hello</b> ä",
        "tags": "made",
        "keys": "key-1 key-2",
        "properties": "colour=red\nsize = 4",
    }
    answer = browser.post("/topics/orders/publish", data=fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/topics/orders")
    assert "published" in text_of(browser.get("/topics/orders"))
    assert "published" not in text_of(browser.get("/topics/orders")), "a note is shown once"
    found = browser.get("/messages?topic=orders&key=key-2")
    link = re.search(r'href="(/message\?id=[^"]+)"', found.text)
    assert link is not None
    text = text_of(browser.get(link[1].replace("&amp;", "&")))
    assert "<b>hello</b> ä" in text
    assert "colour red" in text
    assert "size 4" in text


def test_a_reset_offers_the_topic_before_its_retries(browser: httpx.Client) -> None:
    offered = re.findall(r"<option>(.*?)</option>", browser.get("/groups/billing").text)
    assert offered[0] == "orders"
    assert "%RETRY%billing" in offered[1:]


def test_a_group_is_reset_to_a_time(broker: PocketBroker, browser: httpx.Client) -> None:
    fields = {"token": token(browser, "/groups/billing"), "topic": "orders", "to": "time", "time": "2020-01-01T00:00"}
    answer = browser.post("/groups/billing/reset", data=fields)
    assert answer.status_code == 303
    assert "group billing reset to 2020-01-01" in text_of(browser.get("/groups/billing"))

    async def lag() -> int:
        async with Admin(broker.namesrv) as admin:
            return (await admin.describe_group("billing", topic="orders")).lag

    assert asyncio.run(lag()) >= 47
    fields |= {"to": "latest", "token": token(browser, "/groups/billing")}
    assert browser.post("/groups/billing/reset", data=fields).status_code == 303
    assert asyncio.run(lag()) == 0


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/topics/orders/publish", {"body": "x", "properties": "no equals"}),
        ("/topics/SCHEDULE_TOPIC_XXXX/publish", {"body": "x"}),
        ("/topics/orders/publish", {"body": "x", "tags": "a|b" * 20_000}),
        ("/groups/billing/reset", {"topic": "orders", "to": "time", "time": "yesterday"}),
        ("/groups/billing/reset", {"topic": "unknown", "to": "latest"}),
    ],
)
def test_a_form_that_makes_no_sense_is_refused_with_the_reason(
    browser: httpx.Client, path: str, fields: dict[str, str]
) -> None:
    answer = browser.post(path, data={"token": token(browser), **fields})
    assert 400 <= answer.status_code <= 502
    assert "<h1>" in answer.text


@pytest.mark.parametrize(
    ("headers", "with_token", "with_cookie"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"Origin": "https://evil.example"}, True, True),
        ({"Origin": "null"}, True, True),
        ({"Sec-Fetch-Site": "cross-site"}, True, True),
        ({"Content-Type": "text/plain"}, True, True),
    ],
)
def test_another_site_changes_nothing(
    writing: Served, headers: dict[str, str], with_token: bool, with_cookie: bool
) -> None:
    """A form without the token, without the cookie, from elsewhere, or of a kind that any page can send."""
    browser = writing.client()
    value = token(browser)
    sender = browser if with_cookie else writing.client()
    fields = {"body": "forged", **({"token": value} if with_token else {})}
    content = "&".join(f"{name}={each}" for name, each in fields.items())
    headers = {"Content-Type": "application/x-www-form-urlencoded", **headers}
    answer = sender.post("/topics/orders/publish", content=content, headers=headers)
    assert answer.status_code == 403
    assert "forged" not in text_of(browser.get("/messages?topic=orders&key="))


def test_a_token_is_of_one_visitor(writing: Served) -> None:
    one, other = writing.client(), writing.client()
    stolen = token(one)
    assert token(other) != stolen
    assert other.post("/topics/orders/publish", data={"token": stolen, "body": "forged"}).status_code == 403


def test_a_read_only_dashboard_has_no_form_and_takes_none(served: Served) -> None:
    browser = served.client()
    page = browser.get("/topics/orders")
    assert "read-only" in text_of(page)
    for path in ("/topics/orders/publish", "/groups/billing/reset"):
        answer = browser.post(path, data={"token": "0" * 64, "body": "x"})
        assert answer.status_code == 403
        assert "read-only" in text_of(answer)
        assert browser.get(path).status_code == 405
