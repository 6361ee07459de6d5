"""Logging in as a user of the brokers: cookies, rights, guesses, and what a stranger gets."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pocketmq.dashboard.options import DashboardOptions
from pocketmq.dashboard.security.throttle import FAILURES_MAX, Throttle
from pocketmq.dashboard.security.visits import COOKIE
from pocketmq.testing import PocketBroker
from tests.dashboard.protected import READER, ROOT, protected
from tests.dashboard.serving import Served, serving, text_of, token_of


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path: Path = tmp_path_factory.mktemp("guarded")
    with protected(path) as namesrv:
        yield namesrv


@pytest.fixture
def dashboard(guarded: str) -> Iterator[Served]:
    with serving(DashboardOptions(namesrv=guarded, interval_s=0.1, allow_writes=True)) as served:
        yield served


def log_in(browser: httpx.Client, user: tuple[str, str], to: str = "/") -> httpx.Response:
    form = browser.get("/login")
    fields = {"token": token_of(form), "user": user[0], "secret": user[1], "to": to}
    return browser.post("/login", data=fields)


@pytest.mark.parametrize("path", ["/", "/topics", "/groups/g", "/messages?topic=a&key=b", "/message?id=1"])
def test_a_stranger_is_sent_to_the_log_in(dashboard: Served, path: str) -> None:
    answer = dashboard.client().get(path)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login?to=/")


def test_a_stranger_gets_no_stream(dashboard: Served) -> None:
    browser = dashboard.client()
    assert browser.get("/live/overview").status_code == 401
    assert browser.get("/topics/orders/tail").status_code == 401


def test_a_user_logs_in_looks_and_logs_out(dashboard: Served) -> None:
    browser = dashboard.client()
    before = browser.get("/login").headers["set-cookie"]
    answer = log_in(browser, ROOT, "/topics?sort=name")
    assert (answer.status_code, answer.headers["location"]) == (303, "/topics?sort=name")
    cookie = answer.headers["set-cookie"]
    assert cookie.split(";")[0] != before.split(";")[0], "a cookie that somebody planted is worth nothing"
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    page = browser.get("/")
    assert "1 broker answers" in text_of(page)
    assert ROOT[1] not in page.text
    old = browser.cookies[COOKIE]
    assert browser.post("/logout", data={"token": token_of(page)}).status_code == 303
    assert browser.get("/").status_code == 303
    stale = dashboard.client(Cookie=f"{COOKIE}={old}")
    assert stale.get("/").status_code == 303


def test_rights_are_those_of_the_user(dashboard: Served) -> None:
    """The reader sees all, and the broker refuses what the reader's form asks for."""
    root, reader = dashboard.client(), dashboard.client()
    assert log_in(root, ROOT).status_code == 303
    assert log_in(reader, READER).status_code == 303
    token = token_of(root.get("/"))
    made = root.post("/topics/orders/publish", data={"token": token, "body": "by root"})
    assert made.status_code == 303, text_of(made)
    page = reader.get("/topics/orders")
    assert page.status_code == 200
    refused = reader.post("/topics/orders/publish", data={"token": token_of(page), "body": "by the reader"})
    assert refused.status_code in (403, 502)
    assert "reader" in text_of(refused)
    assert "by root" in text_of(root.get("/messages?topic=orders&key="))
    assert "by the reader" not in text_of(root.get("/messages?topic=orders&key="))


def test_wrong_secrets_are_refused_and_slowed_down(dashboard: Served) -> None:
    browser = dashboard.client()
    answers = [log_in(browser, (ROOT[0], "guess")) for _ in range(FAILURES_MAX + 1)]
    assert [each.status_code for each in answers] == [403] * FAILURES_MAX + [429]
    assert log_in(browser, ROOT).status_code == 429, "the right one as well: else a guess would show"
    assert browser.get("/").status_code == 303


@pytest.mark.parametrize(
    "to", ["//evil.example", "https://evil.example", "/\\evil", "javascript:alert(1)", "/\x0d\x0aX: y"]
)
def test_a_log_in_leads_nowhere_else(dashboard: Served, to: str) -> None:
    assert log_in(dashboard.client(), ROOT, to).headers["location"] == "/"


def test_a_log_in_needs_its_form(dashboard: Served) -> None:
    """A site that logs a visitor in as somebody else would see what the visitor does."""
    fields = {"user": ROOT[0], "secret": ROOT[1]}
    assert dashboard.client().post("/login", data=fields).status_code == 403


def test_where_nobody_is_checked_nobody_logs_in(broker: PocketBroker) -> None:
    with serving(DashboardOptions(namesrv=broker.namesrv, login=True)) as served:
        browser = served.client()
        assert browser.get("/").status_code == 303
        answer = log_in(browser, ROOT)
        assert answer.status_code == 403
        assert "the servers check no user" in text_of(answer)


@pytest.mark.parametrize(
    "change",
    [lambda text: text[:-1] + "0x"[text[-1] == "0"], lambda text: "BA"[text[0] == "B"] + text[1:], lambda text: ""],
)
def test_a_cookie_that_was_changed_is_a_new_visitor(dashboard: Served, change: object) -> None:
    browser = dashboard.client()
    assert log_in(browser, ROOT).status_code == 303
    cookie = browser.cookies[COOKIE]
    assert callable(change)
    stranger = dashboard.client(Cookie=f"{COOKIE}={change(cookie)}")
    assert stranger.get("/").status_code == 303
    assert dashboard.client(Cookie=f"{COOKIE}={cookie}").get("/").status_code == 200


def test_failures_are_bounded() -> None:
    throttle = Throttle()
    for number in range(3000):
        throttle.failed(f"10.0.{number >> 8}.{number & 255}")
    assert len(throttle._failures) <= 1000
    assert not throttle.allows("10.9.9.9"), "so many failures in all slow everybody down"


def test_no_secret_is_in_a_page_or_a_log(dashboard: Served) -> None:
    browser = dashboard.client()
    page = log_in(browser, (ROOT[0], "my-secret-guess"))
    assert "my-secret-guess" not in page.text
    assert re.search(r'type="password"[^>]*value=', page.text) is None
