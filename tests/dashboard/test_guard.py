"""Who is let in: the Host header, the size of a request, the headers of every answer."""

import httpx
import pytest

from pocketmq.dashboard.options import DashboardOptions
from pocketmq.dashboard.security.guard import BODY_BYTES_MAX, host_of
from pocketmq.testing import PocketBroker
from tests.dashboard.serving import Served, serving


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1", "[::1]:80", "10.1.2.3:8088", "LOCALHOST"])
def test_localhost_and_addresses_are_answered(served: Served, host: str) -> None:
    assert served.client().get("/alive", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil:80", "[::1", "", "1.2.3.4.5x"]
)
def test_other_names_are_refused(served: Served, host: str) -> None:
    """A name that leads to 127.0.0.1 (DNS rebinding) is still another name."""
    answer = served.client().get("/", headers={"Host": host})
    assert answer.status_code in (400, 421)
    assert "set-cookie" not in answer.headers


def test_what_another_site_loads_is_refused(served: Served) -> None:
    """A picture, a script or a stream of its page; a link that a visitor follows is something else."""
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    browser = served.client()
    assert browser.get("/topics/orders/tail", headers={**elsewhere, "Sec-Fetch-Mode": "cors"}).status_code == 403
    assert browser.get("/static/icon.svg", headers={**elsewhere, "Sec-Fetch-Mode": "no-cors"}).status_code == 403
    assert browser.get("/topics", headers={**elsewhere, "Sec-Fetch-Mode": "navigate"}).status_code == 200


def test_a_name_can_be_allowed(broker: PocketBroker) -> None:
    with serving(DashboardOptions(namesrv=broker.namesrv, hosts=("Ops.example",))) as served:
        assert served.client().get("/alive", headers={"Host": "ops.example:443"}).status_code == 200
        assert served.client().get("/alive", headers={"Host": "other.example"}).status_code == 421


@pytest.mark.parametrize("path", ["/", "/alive", "/nothing", "/static/dashboard.js", "/topics/none"])
def test_every_answer_has_the_headers(served: Served, path: str) -> None:
    headers = served.client().get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


def test_no_page_has_code_or_style_of_its_own(served: Served) -> None:
    """The policy would not run it: whatever has crept in is dead."""
    browser = served.client()
    for path in ("/", "/topics", "/topics/orders?tags=*", "/groups/billing", "/messages?topic=orders&key="):
        text = browser.get(path).text
        assert " style=" not in text
        assert "<style" not in text
        assert " onclick=" not in text
        assert "javascript:" not in text
        assert "http://" not in text.replace("http://www.w3.org", "")


def test_a_large_request_is_refused(served: Served) -> None:
    """With a length, and without one."""
    browser = served.client()
    part = b"x" * (1 << 20)
    too_large = BODY_BYTES_MAX // len(part) + 2

    def parts() -> "object":
        yield from (part for _ in range(too_large))

    for content in (part * too_large, parts()):
        try:
            answer = browser.post("/topics/orders/publish", content=content)  # type: ignore[arg-type]
        except httpx.TransportError:  # the server closes before it has read all
            continue
        assert answer.status_code in (403, 413)


def test_the_name_in_a_host_header() -> None:
    found = [host_of(text) for text in ("A:80", "a.", "[::1]", "[::1]:80", "a:b", "[::1", "[::1]x", "")]
    assert found == ["a", "a", "[::1]", "[::1]", "", "", "", ""]
