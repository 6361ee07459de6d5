"""Overview, topics, groups and messages of a real broker, read-only; what a hostile message does to them."""

import asyncio
import re
import time
from urllib.parse import quote

import httpx
import pytest

from pocketmq.client import Admin, Message
from pocketmq.client.admin.group_admin import groups_of_topic
from pocketmq.dashboard.options import DashboardOptions
from pocketmq.dashboard.show.bodies import TEXT_BYTES_MAX
from pocketmq.testing import PocketBroker
from tests.dashboard.conftest import HOSTILE_KEY, HUGE
from tests.dashboard.serving import Served, serving, stream, text_of, until_seen

LINK = re.compile(r'href="(/message\?id=[0-9A-F]{32}&amp;topic=[^"]+)"')


@pytest.fixture
def browser(served: Served) -> httpx.Client:
    return served.client()


def messages_of(browser: httpx.Client, query: str) -> list[httpx.Response]:
    """Return the pages of the messages that a search finds."""
    links = dict.fromkeys(LINK.findall(browser.get(f"/messages?{query}").text))
    return [browser.get(link.replace("&amp;", "&")) for link in links]


def test_the_overview_shows_brokers_health_and_who_is_behind(browser: httpx.Client) -> None:
    text = text_of(browser.get("/"))
    assert "1 broker answers" in text
    assert "billing 7" in text
    assert "No request was refused" in text


def test_the_lists_have_what_the_broker_has(browser: httpx.Client) -> None:
    topics = browser.get("/topics?sort=name")
    assert re.search(r'href="/topics/orders".*?>47<', topics.text, re.DOTALL)
    assert "SCHEDULE_TOPIC_XXXX" not in topics.text
    assert "SCHEDULE_TOPIC_XXXX" in browser.get("/topics?kind=system").text
    assert "billing" in browser.get("/groups").text
    assert "No topic has “nothing”" in text_of(browser.get("/topics?q=nothing"))


def test_a_topic_has_its_queues_and_its_groups(browser: httpx.Client) -> None:
    page = browser.get("/topics/orders")
    assert page.status_code == 200
    assert "/groups/billing" in page.text
    assert "Publish" not in page.text


def test_a_topic_says_how_far_behind_its_readers_are_and_names_no_tool(broker: PocketBroker) -> None:
    """A live tail reads as RocketMQ's group of tools; a topic that it follows is not read by that."""

    async def readers() -> list[str]:
        async with Admin(broker.namesrv) as admin:
            return await groups_of_topic(admin, "orders", [broker.address])

    with serving(DashboardOptions(namesrv=broker.namesrv, interval_s=0.1)) as served:
        browser = served.client()
        with stream(browser, "/topics/orders/tail?tags=*") as tail:
            next(tail)
            deadline = time.monotonic() + 60
            while "TOOLS_CONSUMER" not in asyncio.run(readers()):
                assert time.monotonic() < deadline
            until_seen(browser, "/topics/orders", "billing 7 behind")
            assert "TOOLS_CONSUMER" not in browser.get("/topics/orders").text
            assert "TOOLS_CONSUMER" not in browser.get("/connections?kind=consumers").text


def test_a_group_is_behind_in_messages_and_in_time(browser: httpx.Client) -> None:
    text = text_of(browser.get("/groups/billing"))
    assert "Behind, messages 7" in text
    assert re.search(r"orders · [0-9.]+ (ms|s|min) ", text)
    assert "Reset" not in text


def test_messages_are_found_by_key_by_id_and_by_time(browser: httpx.Client) -> None:
    [page] = messages_of(browser, "topic=orders&key=order-7")
    assert '"order": 7' in text_of(page)
    unique = re.search(r"Message id</dt><dd><code>([0-9A-F]{32})<", page.text)
    assert unique is not None
    [again] = messages_of(browser, f"id={unique[1]}")
    assert '"order": 7' in text_of(again)
    assert len(LINK.findall(browser.get("/messages?topic=orders&key=").text)) == 47
    stored = re.search(
        r"Stored</dt><dd><time>([0-9-]+) ([0-9:.]+)Z", messages_of(browser, "topic=orders&key=late-0")[0].text
    )
    assert stored is not None
    assert len(messages_of(browser, f"topic=orders&key=&time={stored[1]}T{stored[2]}")) == 7
    assert "Nothing was found" in browser.get("/messages?topic=orders&key=none").text


@pytest.mark.parametrize(
    ("path", "status"),
    [("/nothing", 404), ("/topics/unknown", 404), ("/groups/unknown", 404), ("/message?id=zz", 400), ("/live/x", 404)],
)
def test_what_is_not_there_is_said_in_words(browser: httpx.Client, path: str, status: int) -> None:
    page = browser.get(path)
    assert page.status_code == status
    assert "<h1>" in page.text
    assert "Traceback" not in page.text


def test_hostile_messages_are_text(browser: httpx.Client) -> None:
    """HTML, escape sequences, a reversed line, binary and huge bodies, in lists, on pages of their own, in names."""
    listed = browser.get("/messages?topic=odd&key=")
    pages = [
        listed,
        browser.get(f"/messages?topic=odd&key={quote(HOSTILE_KEY)}"),
        *messages_of(browser, "topic=odd&key="),
    ]
    assert len(pages) == 6
    for page in pages:
        assert page.status_code == 200
        assert page.text.count("<script") == 1, "the dashboard's own"
        assert "<img src=x" not in page.text
        assert "<b>tag" not in page.text
        assert "\x1b" not in page.text
        assert "\u202e" not in page.text
        assert len(page.text) < 4 * TEXT_BYTES_MAX
    whole = "".join(page.text for page in pages)
    assert "\\x1b[31mred" in whole
    assert "\\u202ereversed" in whole
    assert "000010  10 11 12" in whole
    assert "&lt;img src=x onerror=alert(1)&gt;" in whole


def test_a_body_is_downloaded_as_a_file_that_no_browser_runs(browser: httpx.Client) -> None:
    bodies = []
    for page in messages_of(browser, "topic=odd&key="):
        found = re.search(r'href="(/message/body[^"]+)"', page.text)
        assert found is not None
        body = browser.get(found[1].replace("&amp;", "&"))
        assert body.headers["content-type"] == "application/octet-stream"
        assert body.headers["content-disposition"].startswith("attachment")
        assert body.headers["x-content-type-options"] == "nosniff"
        bodies.append(body.content)
    assert HUGE in bodies


def test_bodies_can_be_hidden(broker: PocketBroker) -> None:
    with serving(DashboardOptions(namesrv=broker.namesrv, hide_bodies=True)) as served:
        browser = served.client()
        [page] = messages_of(browser, "topic=orders&key=order-7")
        assert '"order": 7' not in text_of(page)
        assert "hidden, 12 B" in text_of(page)
        link = LINK.search(browser.get("/messages?topic=orders&key=order-7").text)
        assert link is not None
        body = browser.get(link[1].replace("&amp;", "&").replace("/message?", "/message/body?"))
        assert body.status_code == 403


def test_a_page_that_moves_gets_its_changes(broker: PocketBroker, browser: httpx.Client) -> None:
    with stream(browser, "/live/topics?q=moving&sort=name") as events:
        assert next(events)[0] == "page"

        async def send() -> None:
            async with broker.producer() as producer:
                await producer.send(Message("moving-topic", b"x"))

        asyncio.run(send())
        for name, data in events:
            if name == "page" and "/topics/moving-topic" in data:
                break


def test_the_tail_follows_a_topic_through_a_filter(broker: PocketBroker, browser: httpx.Client, served: Served) -> None:
    with stream(browser, "/topics/orders/tail?tags=wanted") as events:
        assert next(events)[0] == "open"

        async def send_until_seen() -> str:
            """A consumer joins a moment after its stream is open: send until it sees one."""
            seen = asyncio.create_task(asyncio.to_thread(next, events))
            async with broker.producer() as producer:
                while not seen.done():
                    await producer.send(Message("orders", b"<i>not</i>", tags="other"))
                    await producer.send(Message("orders", b"<i>this</i>", tags="wanted"))
                    await asyncio.wait([seen], timeout=0.05)
            name, data = await seen
            assert name == "message"
            return data

        row = asyncio.run(send_until_seen())
        assert "&lt;i&gt;this&lt;/i&gt;" in row
    bad = "/topics/orders/tail?sql=" + quote("price >")
    with stream(browser, bad) as events:
        assert [name for name, _ in events] == ["open", "end"]
    assert len(served.desk.tails) <= 2
