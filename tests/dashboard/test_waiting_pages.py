"""Dead letters, delayed messages, open transactions, replication and connections at a real broker."""

import asyncio
import json
import re
import time
from collections.abc import Iterator

import httpx
import pytest

from pocketmq.client import Admin, Message, ReceivedMessage, TransactionProducer
from pocketmq.client.admin.dead_letters import DeadLetters
from pocketmq.client.handlers.consume_result import DeadLetter
from pocketmq.client.transaction_admin import open_transactions
from pocketmq.dashboard.options import DashboardOptions
from pocketmq.dashboard.pages.waiting import levels_of
from pocketmq.dashboard.watch.state import BrokerState
from pocketmq.testing import PocketBroker
from tests.dashboard.serving import Served, serving, text_of, token_of

WHY = "<script>cannot book</script>"


async def _fill(broker: PocketBroker) -> None:
    async def refuse(message: ReceivedMessage) -> DeadLetter:
        return DeadLetter(WHY)

    async with broker.producer() as producer:
        for at in range(3):
            await producer.send(Message("orders", b"dead-%d" % at, keys=[f"dead-{at}"]))
        await producer.send(Message("orders", b"later", delay_time_level=5))
    consumer = broker.consumer("booking")
    consumer.subscribe("orders")(refuse)
    async with consumer:
        await broker.until_idle("booking")


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    with PocketBroker() as running:
        asyncio.run(_fill(running))
        yield running


@pytest.fixture(scope="module")
def served(broker: PocketBroker) -> Iterator[Served]:
    with serving(DashboardOptions(namesrv=broker.namesrv, interval_s=0.1, allow_writes=True)) as running:
        yield running


@pytest.fixture
def browser(served: Served) -> httpx.Client:
    return served.client()


def page_with(browser: httpx.Client, path: str, text: str) -> httpx.Response:
    """Load a page until it has a text: viewers share an answer for a moment, and the watch looks now and then."""
    deadline = time.monotonic() + 60
    while text not in (page := browser.get(path)).text:
        assert time.monotonic() < deadline, page.text
        time.sleep(0.05)
    return page


def test_dead_letters_say_why_and_go_back_once(broker: PocketBroker, browser: httpx.Client) -> None:
    assert re.search(r'href="/dead-letters/booking".*?>3<', browser.get("/dead-letters").text, re.DOTALL)
    page = browser.get("/dead-letters/booking")
    assert "cannot book" in text_of(page)
    assert WHY not in page.text
    chosen = re.findall(r'name="(id-\d+)" value="([0-9A-F]+)"', page.text)
    assert len(chosen) == 3
    fields = {"token": token_of(page), "to": "retry", **dict(chosen[:2])}
    for expected in (
        "sent 2 dead letters",
        "sent 0 dead letters of booking again, to the group alone; 2 were left out",
    ):
        assert browser.post("/dead-letters/booking/resend", data=fields).status_code == 303
        assert expected in text_of(browser.get("/dead-letters/booking"))

    async def resent() -> list[int]:
        async with Admin(broker.namesrv) as admin:
            letters = DeadLetters(admin)
            return sorted([(await letters.resends(each, "booking")).count async for each in letters.read("booking")])

    assert asyncio.run(resent()) == [0, 1, 1]


def test_a_resend_takes_no_message_of_another_topic(broker: PocketBroker, browser: httpx.Client) -> None:
    page = browser.get("/messages?topic=orders&key=dead-0")
    other = re.search(r"id=([0-9A-F]{32})", page.text)
    assert other is not None
    fields = {"token": token_of(browser.get("/dead-letters/booking")), "to": "origin", "id-1": other[1]}
    assert browser.post("/dead-letters/booking/resend", data=fields).status_code == 303
    assert "is no dead letter of booking" in text_of(browser.get("/dead-letters/booking"))


def test_dead_letters_are_exported(browser: httpx.Client) -> None:
    answer = browser.get("/dead-letters/booking/export")
    assert answer.headers["content-disposition"].startswith("attachment")
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert sorted(row["body"] for row in rows) == ["dead-0", "dead-1", "dead-2"]
    assert {row["origin_topic"] for row in rows} == {"orders"}
    assert all("cannot book" in row["last_error"] for row in rows)


def test_delayed_messages_wait_in_their_level(browser: httpx.Client) -> None:
    assert re.search(r"pocket 5 1m 1\b", text_of(browser.get("/waiting")))


@pytest.mark.parametrize("value", ["", "1", "1,", "x,2", "5,3", "1,99999999999999999999999"])
def test_a_level_that_makes_no_sense_is_left_out(value: str) -> None:
    broker = BrokerState("b", 0, "a", runtime={"scheduleMessageOffset_3": value, "scheduleMessageOffset_x": "1,2"})
    assert levels_of([broker]) == []


def test_open_transactions_are_decided(broker: PocketBroker, browser: httpx.Client) -> None:
    async def prepare() -> None:
        async with TransactionProducer("shop", broker.namesrv, check=lambda message: None) as producer:
            for at in range(2):
                await producer.send_in_transaction(Message("paid", b"half-%d" % at), lambda message: None)

    asyncio.run(prepare())
    page = page_with(browser, "/waiting", "shop")
    chosen = re.findall(r'name="(id-\d+)" value="([^"]+)"', page.text)
    assert len(chosen) == 2
    token = token_of(page)
    first = {"token": token, "decision": "commit", **dict(chosen[:1])}
    assert browser.post("/waiting/decide", data=first).status_code == 303
    assert "committed 1 transaction" in text_of(browser.get("/waiting"))
    both = {"token": token, "decision": "rollback", **dict(chosen)}
    assert browser.post("/waiting/decide", data=both).status_code == 303
    assert "rolled back 1 transaction; 1 had been decided meanwhile" in text_of(browser.get("/waiting"))

    async def left() -> int:
        async with Admin(broker.namesrv) as admin:
            return len(await open_transactions(admin))

    assert asyncio.run(left()) == 0
    assert "half-0" in text_of(browser.get("/messages?topic=paid&key="))
    assert "half-1" not in text_of(browser.get("/messages?topic=paid&key="))


def test_replication_shows_roles_and_epochs(browser: httpx.Client) -> None:
    text = text_of(browser.get("/replication"))
    assert "ASYNC_MASTER" in text
    assert "127.0.0.1" in text


def test_a_promotion_needs_its_confirmation(browser: httpx.Client) -> None:
    token = token_of(browser.get("/topics/orders"))
    answer = browser.post("/replication/pocket/promote", data={"token": token, "confirm": "yes"})
    assert answer.status_code == 400
    assert "the confirmation is not pocket" in text_of(answer)
    answer = browser.post("/replication/pocket/promote", data={"token": token, "confirm": "pocket"})
    assert "no slave of pocket answers" in text_of(answer)


def test_connections_show_who_produces_and_who_consumes(broker: PocketBroker, browser: httpx.Client) -> None:
    async def look() -> None:
        consumer = broker.consumer("watched")
        consumer.subscribe("orders")(lambda message: None)
        async with broker.producer("maker") as producer, consumer:
            await producer.send(Message("orders", b"x"))
            for kind, group in (("producers", "maker"), ("consumers", "watched")):
                path, topic = f"/connections?kind={kind}&q={group}", 'href="/topics/orders"'
                page = await asyncio.to_thread(page_with, browser, path, topic)
                assert re.search(r"PYTHON V\d+_\d+_\d+", text_of(page))

    asyncio.run(look())
