"""The dashboard in a real browser: what it shows, that it moves, the keyboard, the dark, a phone's width.

``POCKETMQ_PICTURES=docs/pictures`` writes the pictures of docs/dashboard.md; without it they go elsewhere.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pocketmq.cli.dashboard.findings import findings_of
from pocketmq.cli.scenario.catalog import CATALOG
from pocketmq.client import Message, ReceivedMessage
from pocketmq.client.handlers.consume_result import DeadLetter
from pocketmq.common.errors import PocketMQError
from pocketmq.dashboard.options import DashboardOptions, ScenarioInfo
from pocketmq.testing import PocketBroker
from tests.dashboard.chromium import COMMAND, Chromium, chromium
from tests.dashboard.serving import Served, serving

pytestmark = [
    pytest.mark.soak,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(COMMAND is None, reason="no Chromium here: apt-get install chromium"),
]
WIDTH, HEIGHT = 1280, 800
BOOM = "<script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">"


class Shop:
    """Clients of a small shop, on a loop of their own thread, until ``stop``."""

    def __init__(self, broker: PocketBroker) -> None:
        self._broker = broker
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name="shop")
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)

    async def _live(self) -> None:
        async def report(message: ReceivedMessage) -> None:
            await asyncio.sleep(0.1)

        def book(message: ReceivedMessage) -> DeadLetter:
            return DeadLetter("no account for customer 4711")

        billing = self._broker.consumer("billing", enable_message_trace=True)
        reporting, booking = (self._broker.consumer(group) for group in ("reporting", "booking"))
        async with self._broker.producer("shop", enable_message_trace=True) as producer:
            for topic in ("orders", "clicks", "payments"):
                await producer.send(Message(topic, BOOM.encode(), keys=["boom"], tags="boom"))
            billing.subscribe("orders")(lambda message: None)
            reporting.subscribe("clicks")(report)
            booking.subscribe("payments")(book)
            async with billing, reporting, booking:
                number = 0
                while not self._stop.is_set():
                    number += 1
                    order = b'{"order": %d, "items": ["tea", "cake"], "total": 12.5}' % number
                    await producer.send(Message("orders", order, keys=[f"order-{number}"], tags="paid"))
                    if number % 100 == 0:
                        with suppress(PocketMQError):  # more than the broker takes
                            await producer.send(Message("pictures", bytes(200_000), keys=[f"picture-{number}"]))
                    if number % 20 == 0:
                        await producer.send(Message("payments", b'{"amount": 99}', keys=[f"payment-{number}"]))
                        await producer.send(Message("mails", b"remind me", delay_time_level=9))
                    clicks = (producer.send(Message("clicks", b'{"page": "/"}')) for _ in range(5 + number % 7))
                    await asyncio.gather(*clicks)
                    await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def shop() -> Iterator[PocketBroker]:
    with PocketBroker(store={"os_page_cache_busy_timeout_mills": 5000, "max_message_size": 65_536}) as broker:
        clients = Shop(broker)
        try:
            yield broker
        finally:
            clients.stop()


@pytest.fixture(scope="module")
def served(shop: PocketBroker) -> Iterator[Served]:
    options = DashboardOptions(
        namesrv=shop.namesrv,
        interval_s=0.5,
        allow_writes=True,
        doctor=findings_of,
        scenarios=tuple(ScenarioInfo(each.name, each.incident, each.question) for each in CATALOG),
        scenario_command=(sys.executable, "-m", "pocketmq.cli.main", "scenario"),
    )
    with serving(options) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as running:
        yield running


@pytest.fixture
def tab(browser: Chromium) -> Iterator[Chromium]:
    """The browser, wide and light; after the test nothing has complained."""
    browser.errors.clear()
    browser.size(WIDTH, HEIGHT)
    yield browser
    assert browser.errors == []


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wanted = os.environ.get("POCKETMQ_PICTURES", "")
    return Path(wanted) if wanted else tmp_path_factory.mktemp("pictures")


def text_has(words: str) -> str:
    return f"document.body.innerText.includes({words!r})"


def test_the_overview_moves_without_being_loaded(tab: Chromium, served: Served, pictures: Path) -> None:
    tab.go(f"{served.url}/")
    tab.until(text_has("reporting"))
    tab.until(text_has("The doctor finds"))
    tab.run("window.here = true")
    before = tab.run("document.querySelector('#live polyline').getAttribute('points')")
    tab.until(f"document.querySelector('#live polyline').getAttribute('points') !== {before!r}")
    tab.until("document.querySelector('#live polyline').getAttribute('points').split(' ').length > 30")
    assert tab.run("window.here") is True
    tab.until(text_has("bad_request"))
    tab.size(WIDTH, 1180)
    tab.run("document.querySelector('details.finding').open = true")
    tab.picture(pictures / "dashboard-overview.png")


def test_the_dark_is_dark_and_the_light_light(tab: Chromium, served: Served, pictures: Path) -> None:
    def brightness() -> int:
        color = tab.run("getComputedStyle(document.body).backgroundColor")
        return sum(int(each) for each in color.strip("rgb()").split(",")) // 3

    tab.go(f"{served.url}/groups")
    tab.until(text_has("booking"))
    assert brightness() > 200
    tab.size(WIDTH, HEIGHT, dark=True)
    assert brightness() < 50
    tab.until("document.querySelectorAll('#live tbody tr').length >= 3")
    tab.picture(pictures / "dashboard-groups-dark.png")


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/topics", "/topics/orders", "/groups", "/groups/billing", "/messages?topic=orders&key=", "/waiting"),
        *("/dead-letters/booking", "/replication", "/connections", "/scenarios"),
    ],
)
def test_a_phone_shows_all_without_scrolling_sideways(tab: Chromium, served: Served, pictures: Path, path: str) -> None:
    tab.size(390, 844, phone=True)
    tab.go(served.url + path)
    assert tab.run("document.documentElement.scrollWidth <= 390")
    screen = "document.querySelector('header nav [aria-current]').getBoundingClientRect()"
    assert tab.run(f"{screen}.left >= 0 && {screen}.right <= 390"), "the name of the screen is in view"
    if path in ("/dead-letters/booking", "/scenarios"):  # what is pressed is in view
        tab.until("document.querySelectorAll('main button, main input[data-all]').length > 1")
        hidden = "[...document.querySelectorAll('main button, main input')].some((each) => each.type !== 'hidden'"
        assert not tab.run(f"{hidden} && (!each.offsetWidth || each.getBoundingClientRect().right > 390))")
    if path == "/":
        tab.until("document.querySelectorAll('#live polyline').length > 3")
        tab.picture(pictures / "dashboard-phone.png")


def test_the_keyboard_is_enough(tab: Chromium, served: Served) -> None:
    """A digit opens a screen, a slash the search, Tab reaches a link and stays on it while the page moves."""
    tab.go(f"{served.url}/")
    tab.key("2", "2")
    tab.until("location.pathname === '/topics'")
    tab.until("document.readyState === 'complete' && document.querySelector('#live tbody') !== null")
    tab.key("/", "/")
    tab.until("document.activeElement.name === 'q'")
    tab.write("order")
    tab.key("Enter", "\r")
    tab.until("location.search === '?q=order' && document.readyState === 'complete'")
    tab.until("document.querySelectorAll('#live tbody a').length === 1")
    for _ in range(40):
        tab.key("Tab")
        if tab.run("document.activeElement.getAttribute('href')") == "/topics/orders":
            break
    before = tab.run("document.querySelector('#live polyline').getAttribute('points')")
    tab.until(f"document.querySelector('#live polyline').getAttribute('points') !== {before!r}")
    assert tab.run("document.activeElement.getAttribute('href')") == "/topics/orders"
    tab.key("Enter", "\r")
    tab.until("location.pathname === '/topics/orders'")


def test_the_tail_shows_messages_as_they_are_stored(tab: Chromium, served: Served, pictures: Path) -> None:
    tab.go(f"{served.url}/topics/orders?tags=*")
    tab.until("document.querySelectorAll('#tail tbody tr').length > 15")
    tab.run("document.getElementById('tail-pause').click()")
    tab.until("document.getElementById('tail-state').textContent.includes('paused')")
    tab.run("document.getAnimations().forEach((each) => each.finish())")
    tab.picture(pictures / "dashboard-tail.png")


def test_a_hostile_body_is_text_wherever_it_is_shown(tab: Chromium, served: Served) -> None:
    for path in ("/messages?topic=orders&key=boom", "/messages?topic=%25DLQ%25booking&key=boom"):
        tab.go(served.url + path)
        tab.until(text_has("hacked"))
        assert "hacked" not in tab.run("document.title")
    tab.go(f"{served.url}/messages?topic=orders&key=boom")
    tab.run("document.querySelector('#main tbody a').click()")
    tab.until("location.pathname === '/message'")
    tab.until(text_has("<script>"))
    assert "hacked" not in tab.run("document.title")
    assert tab.run("document.querySelectorAll('main script, main img').length") == 0


def test_a_message_is_shown_with_its_trace(tab: Chromium, served: Served, pictures: Path) -> None:
    tab.go(f"{served.url}/messages?topic=orders&key=order-5")
    tab.run("document.querySelector('#main tbody a').click()")
    tab.until("location.pathname === '/message'")
    tab.until(text_has("sent by"))
    tab.until(text_has("billing"))
    tab.size(WIDTH, 960)
    tab.picture(pictures / "dashboard-message.png")


def test_dead_letters_are_sent_again_by_hand(tab: Chromium, served: Served, pictures: Path) -> None:
    tab.go(f"{served.url}/dead-letters/booking")
    tab.until("document.querySelectorAll('tbody input[type=checkbox]').length > 1")
    tab.picture(pictures / "dashboard-dead-letters.png")
    tab.run("document.querySelector('tbody input[type=checkbox]').click()")
    tab.run("setTimeout(() => document.querySelector('form[action$=resend] button').click(), 0)")
    tab.until(text_has("sent 1 dead letter of booking again"))


def test_an_incident_is_played_on_brokers_of_its_own(tab: Chromium, served: Served, pictures: Path) -> None:
    tab.go(f"{served.url}/scenarios")
    tab.run("document.querySelector('[aria-label=\"play timeout-clean-queue\"]').click()")
    tab.until("location.pathname === '/scenario'")
    tab.until("document.querySelectorAll('#live .card li').length > 0")
    tab.until(text_has("The fault was seen, and the cure worked"), 180)
    assert tab.run("document.querySelectorAll('.sends circle').length") > 50
    tab.picture(pictures / "dashboard-scenario.png")


def test_a_dashboard_that_is_gone_is_told(tab: Chromium, shop: PocketBroker) -> None:
    with serving(DashboardOptions(namesrv=shop.namesrv, interval_s=0.2)) as leaving:
        tab.go(f"{leaving.url}/")
        tab.until("document.getElementById('pulse').className === 'pulse'")
    tab.until("document.getElementById('pulse').className === 'pulse lost'")
    tab.errors.clear()  # the browser says so, too
