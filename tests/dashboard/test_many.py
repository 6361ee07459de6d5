"""A cluster as large as the one at which RocketMQ's dashboard stops working: 900 topics and 2,300 groups."""

import asyncio
import re
from collections.abc import Iterator

import httpx
import pytest

from pocketmq.client import Admin, Message
from pocketmq.dashboard.options import DashboardOptions
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.offset import UpdateConsumerOffsetRequestHeader
from pocketmq.testing import PocketBroker
from tests.dashboard.serving import serving, until_seen

pytestmark = pytest.mark.slow
TOPICS, GROUPS = 900, 2_300
AT_ONCE = 50
ROWS = 25
"""Of one page of a list."""
PAGE_BYTES_MAX = 100_000


async def fill(broker: PocketBroker) -> None:
    """Make the topics, with a message in each ninth, and the groups, which have read none of them."""
    async with Admin(broker.namesrv) as admin, broker.producer() as producer:
        connection = await admin.instance.connection_to(broker.address, broker.address, timeout_ms=60_000)

        async def group(number: int) -> None:
            header = UpdateConsumerOffsetRequestHeader(f"group-{number:04}", f"topic-{number % TOPICS:03}", 0, 0)
            answer = await connection.channel.request(RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_ms=60_000)
            assert answer.code == 0, answer.remark

        for at in range(0, TOPICS, AT_ONCE):
            names = [f"topic-{number:03}" for number in range(at, at + AT_ONCE)]
            await asyncio.gather(*(admin.create_topic(name, queues=1) for name in names))
            for name in names[:: AT_ONCE // 5]:
                await producer.send(Message(name, b"one"))
        for at in range(0, GROUPS, AT_ONCE):
            await asyncio.gather(*map(group, range(at, at + AT_ONCE)))


@pytest.fixture(scope="module")
def browser() -> Iterator[httpx.Client]:
    with PocketBroker() as broker:
        asyncio.run(fill(broker))
        with serving(DashboardOptions(namesrv=broker.namesrv, interval_s=0.2)) as served:
            yield served.client()


def rows(page: httpx.Response) -> int:
    return len(re.findall(r"<tr>", page.text)) - page.text.count("<thead>")


@pytest.mark.parametrize(("path", "count"), [("/topics", TOPICS), ("/groups", GROUPS)])
def test_a_list_has_pages_of_a_bounded_length(browser: httpx.Client, path: str, count: int) -> None:
    """The first, the last, one that is not there, and a search."""
    until_seen(browser, path, f"{count:,} in all")
    pages = -(-count // ROWS)
    for query, found in (
        ("", ROWS),
        (f"page={pages}", ROWS),
        ("page=999999", ROWS),
        ("q=0123", int(path == "/groups")),
    ):
        page = browser.get(f"{path}?{query}&sort=name")
        assert page.status_code == 200
        assert rows(page) == found, query
        assert len(page.content) < PAGE_BYTES_MAX


def test_the_overview_and_single_pages_stay_short(browser: httpx.Client) -> None:
    until_seen(browser, "/", "Furthest behind Group Messages Time")
    for path in (
        "/",
        "/topics/topic-000",
        "/groups/group-0000",
        "/connections",
        "/dead-letters",
        "/waiting",
        "/replication",
    ):
        page = browser.get(path)
        assert page.status_code == 200, path
        assert len(page.content) < PAGE_BYTES_MAX, path
