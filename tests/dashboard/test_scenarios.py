"""The scenario player: one process at a time, its steps, its report, its end. A soak test plays a real incident."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pocketmq.cli.scenario.catalog import CATALOG
from pocketmq.dashboard.options import DashboardOptions, ScenarioInfo
from pocketmq.dashboard.show.sends_picture import DOTS_MAX, sends_picture
from pocketmq.testing import PocketBroker
from tests.dashboard.serving import Served, serving, text_of, token_of

PROGRAM = """
import json, pathlib, signal, sys, time
name, options = sys.argv[1], sys.argv[2:]
assert options[:2] == ["--quick", "--json"] and options[2] == "--namesrv-port" and int(options[3]) > 0, options
print("  a step of", name, "\\x1b[2J<b>", "…", file=sys.stderr, flush=True)
if name == "waits":
    def end(*_):
        pathlib.Path({gone!r}).write_text("cleaned up")
        raise SystemExit(130)
    signal.signal(signal.SIGTERM, end)
    print("ready", file=sys.stderr, flush=True)
    while True: time.sleep(0.01)
if name == "fails":
    print("x" * 200_000, file=sys.stderr)
    raise SystemExit(3)
print(json.dumps({report!r}))
"""
REPORT = {
    "schema": 1,
    "duration_s": 1.5,
    "ok": True,
    "cure": "<i>the cure</i>",
    "price": "the price",
    "phases": [
        {
            "name": "the fault",
            "role": "fault",
            "sends": 2,
            "delivered": 1,
            "outcomes": [
                {"text": "SEND_OK", "count": 1, "delivered": True},
                {"text": "[TIMEOUT_CLEAN_QUEUE]broker busy", "count": 1, "delivered": False, "cause": "queue_timeout"},
            ],
            "checks": [{"what": "sends are refused", "found": "1", "ok": True}],
            "points": [[0.1, 3.0, 0], [0.2, 300.0, 1], [0.3, 1.0, 99]],
        }
    ],
}


@pytest.fixture
def gone(tmp_path: Path) -> Path:
    return tmp_path / "gone"


@pytest.fixture
def served(broker: PocketBroker, gone: Path) -> Iterator[Served]:
    program = PROGRAM.replace("{gone!r}", repr(str(gone))).replace("{report!r}", repr(REPORT))
    names = ("ends", "waits", "fails")
    options = DashboardOptions(
        namesrv=broker.namesrv,
        interval_s=0.1,
        allow_writes=True,
        scenarios=tuple(ScenarioInfo(name, f"incident {name}", "why?") for name in names),
        scenario_command=(sys.executable, "-c", program),
    )
    with serving(options) as running:
        yield running


@pytest.fixture
def browser(served: Served) -> httpx.Client:
    return served.client()


def play(browser: httpx.Client, name: str) -> httpx.Response:
    return browser.post(f"/scenarios/{name}/play", data={"token": token_of(browser.get("/scenarios"))})


def until(browser: httpx.Client, text: str) -> httpx.Response:
    deadline = time.monotonic() + 60
    while text not in text_of(page := browser.get("/scenario")):
        assert time.monotonic() < deadline, text_of(page)
        time.sleep(0.05)
    return page


def test_an_incident_is_played_and_its_report_shown(browser: httpx.Client) -> None:
    assert "None has been played" in browser.get("/scenario").text
    assert play(browser, "ends").headers["location"] == "/scenario"
    page = until(browser, "The fault was seen, and the cure worked")
    text = text_of(page)
    assert "1 of 2 sends were delivered" in text
    assert "1 × [TIMEOUT_CLEAN_QUEUE]broker busy queue_timeout" in text
    assert "<i>the cure</i>" in text
    assert "a step of ends [2J<b>" in text
    assert "\x1b" not in page.text
    assert page.text.count("<circle") == 3


def test_one_incident_at_a_time_and_it_can_be_stopped(browser: httpx.Client, gone: Path) -> None:
    assert play(browser, "waits").status_code == 303
    page = until(browser, "ready")
    again = play(browser, "ends")
    assert again.status_code == 503
    assert "waits is being played" in text_of(again)
    assert browser.post("/scenario/stop", data={"token": token_of(page)}).status_code == 303
    assert gone.read_text() == "cleaned up"
    until(browser, "it was stopped")


def test_a_dashboard_that_ends_takes_its_incident_along(served: Served, gone: Path) -> None:
    browser = served.client()
    assert play(browser, "waits").status_code == 303
    until(browser, "ready")
    served.stop()
    assert gone.read_text() == "cleaned up"


def test_an_incident_without_a_report_says_so(browser: httpx.Client) -> None:
    assert play(browser, "fails").status_code == 303
    until(browser, "it ended with code 3 and without a report")


def test_what_is_no_scenario_is_not_run(browser: httpx.Client) -> None:
    assert play(browser, "--keep").status_code == 400
    assert browser.post("/scenarios/ends/play", data={"token": "x"}).status_code == 403


def test_the_picture_is_bounded() -> None:
    many = [(at / 10, 1.0 + at, at % 2 == 0) for at in range(10 * DOTS_MAX)]
    assert sends_picture(many, "x").count("<circle") <= DOTS_MAX
    for odd in ([], [(0.0, 0.0, True)], [(-1.0, -5.0, False)]):
        assert "nan" not in sends_picture(odd, "<b>")
        assert "<b>" not in sends_picture(odd, "<b>")


def test_every_scenario_has_a_name_that_a_path_can_have() -> None:
    assert all(each.name.replace("-", "").isalnum() for each in CATALOG)
