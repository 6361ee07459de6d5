"""One watch for all viewers: what it asks, how many, slow viewers, a broker that goes away and comes back."""

import asyncio
import socket
import time

import pytest

from pocketmq.dashboard import application
from pocketmq.dashboard.live.tail import WAITING_MAX, Viewer
from pocketmq.dashboard.options import DashboardOptions
from pocketmq.dashboard.watch.cluster_watch import ClusterWatch
from pocketmq.dashboard.watch.state import ClusterState, GroupState, GroupTopic, TopicState
from pocketmq.dashboard.watch.watches import USERS_MAX, TooManyUsers, Watches
from pocketmq.remoting.security.credentials import Credentials
from pocketmq.testing import PocketBroker
from tests.dashboard.serving import Served, serving, text_of, until_seen

PATHS = ("/", "/topics", "/groups", "/dead-letters", "/connections", "/live/overview")


def test_many_viewers_look_once(broker: PocketBroker) -> None:
    """Pages of the watched state ask nobody: with a watch that rests, a hundred of them cost the broker nothing."""
    with serving(DashboardOptions(namesrv=broker.namesrv, interval_s=3600)) as served:
        browsers = [served.client() for _ in range(5)]
        assert "1 broker answers" in text_of(browsers[0].get("/"))
        watch = served.desk.watches._watches[None]
        opened = watch.admin.instance.connections_opened
        for _ in range(4):
            for browser in browsers:
                for path in PATHS[:-1]:
                    assert browser.get(path).status_code == 200
        assert watch.looks == 1
        assert watch.admin.instance.connections_opened == opened


def test_a_hundred_slow_viewers_cost_no_memory_and_keep_nobody_waiting(served: Served) -> None:
    """They open a stream and read nothing: each has a socket and the last page, no queue."""
    host, _, port = served.url.removeprefix("http://").partition(":")
    request = f"GET /live/overview HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    slow = []
    try:
        for _ in range(100):
            viewer = socket.create_connection((host, int(port)))
            viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            viewer.sendall(request)
            slow.append(viewer)
        browser = served.client()
        deadline = time.monotonic() + 60
        while served.desk.viewers < 100:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        revision = served.desk.watches._watches[None].state.revision
        until_seen(browser, "/", "1 broker answers")
        while served.desk.watches._watches[None].state.revision < revision + 5:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert len(served.desk._made) <= 64
    finally:
        for viewer in slow:
            viewer.close()
    while served.desk.viewers > 5:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_broker_that_goes_away_is_told_and_comes_back() -> None:
    with PocketBroker() as broker, serving(DashboardOptions(namesrv=broker.namesrv, interval_s=0.1)) as served:
        browser = served.client()
        until_seen(browser, "/", "1 broker answers")
        namesrv = broker.namesrv
        broker.restart()
        assert broker.namesrv == namesrv
        until_seen(browser, "/", "1 broker answers")
        broker.stop()
        assert "No broker answers: what is refused is not known" in until_seen(browser, "/", "Health failing")
        for path in PATHS[:-1]:
            assert browser.get(path).status_code == 200
        for path in ("/topics/orders", "/groups/billing", "/message?id=7F000001000094FF0000000000000288"):
            page = browser.get(path)
            assert page.status_code >= 400
            assert "<h1>" in page.text


def test_no_cluster_at_all_is_told_on_every_page() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nobody = silent.getsockname()[1]
    with serving(DashboardOptions(namesrv=f"127.0.0.1:{nobody}", interval_s=0.1)) as served:
        browser = served.client()
        assert "failing" in text_of(browser.get("/"))
        for path in (*PATHS[1:-1], "/waiting", "/replication", "/scenarios", "/messages"):
            assert browser.get(path).status_code == 200


def test_a_viewer_of_a_tail_that_does_not_read_loses_the_oldest() -> None:
    viewer = Viewer()
    for number in range(3 * WAITING_MAX):
        viewer.put(number)  # type: ignore[arg-type]
    found, left_out = viewer.take()
    assert (len(found), left_out) == (WAITING_MAX, 2 * WAITING_MAX)
    assert found == list(range(2 * WAITING_MAX, 3 * WAITING_MAX))  # type: ignore[comparison-overlap]
    assert viewer.take() == ([], 0)


async def test_users_have_watches_of_their_own_and_not_too_many() -> None:
    watches = Watches(DashboardOptions(namesrv="127.0.0.1:1"))
    users = [Credentials(f"user-{number}", "secret") for number in range(USERS_MAX)]
    first = await watches.of(users[0])
    assert await watches.of(users[0]) is first
    assert await watches.of(Credentials("user-0", "another")) is not first
    for user in users[1:-1]:
        await watches.of(user)
    with pytest.raises(TooManyUsers):
        await watches.of(users[-1])
    first._looked_ns = 0
    await watches.of(users[-1])
    await watches.stop()


async def test_a_watch_that_nobody_looks_at_stops(broker: PocketBroker) -> None:
    watch = ClusterWatch(DashboardOptions(namesrv=broker.namesrv, interval_s=0.01), None)
    state = await watch.look()
    assert state.revision >= 1
    watch._looked_ns = 0
    assert watch._task is not None
    await asyncio.wait_for(asyncio.shield(watch._task), 60)
    assert (await watch.changed(watch.state.revision)).revision > 1, "and begins again with the next viewer"
    await watch.stop()


async def test_the_first_page_after_a_rest_does_not_show_what_was_before() -> None:
    """A broker that died while nobody looked is not well on the first page that somebody opens then."""
    with PocketBroker() as broker:
        watch = ClusterWatch(DashboardOptions(namesrv=broker.namesrv, interval_s=0.01), None)
        assert not (await watch.look()).problems
        watch._looked_ns = 0
        assert watch._task is not None
        await asyncio.wait_for(asyncio.shield(watch._task), 60)
    assert "cluster" in (await watch.look()).problems
    await watch.stop()


def test_health_says_what_is_wrong() -> None:
    state = ClusterState(revision=1)
    assert state.health() == ("failing", ["no broker is registered at the name servers"])


def test_a_topic_s_rate_is_its_growth() -> None:
    topic = TopicState("t")
    topic.take_ends({("b", 0): 10, ("b", 1): 5}, 1_000_000_000)
    assert (topic.rate, topic.count) == (0.0, 15)
    topic.take_ends({("b", 0): 30, ("b", 1): 5}, 3_000_000_000)
    assert topic.rate == 10.0
    topic.take_ends({("b", 0): 0, ("b", 1): 0}, 5_000_000_000)
    assert topic.rate == 0.0, "a topic that was deleted and made again"


def test_a_group_is_as_far_behind_as_its_oldest_message() -> None:
    group = GroupState("g", {"a": GroupTopic("a", 3, behind_ms=70), "b": GroupTopic("b", 0, behind_ms=900)})
    assert (group.lag, group.behind_ms) == (3, 70)


def test_viewers_that_come_at_the_same_time_are_counted_at_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound holds before the first of them has got a page; those that go make room."""
    monkeypatch.setattr(application, "VIEWERS_MAX", 3)
    served.client().get("/")
    host, _, port = served.url.removeprefix("http://").partition(":")
    viewers = [socket.create_connection((host, int(port))) for _ in range(30)]
    try:
        for viewer in viewers:
            viewer.sendall(f"GET /live/overview HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        first = [viewer.recv(12) for viewer in viewers]
        assert sorted(first) == [b"HTTP/1.1 200"] * 3 + [b"HTTP/1.1 503"] * 27
    finally:
        for viewer in viewers:
            viewer.close()
    deadline = time.monotonic() + 60
    while served.desk.viewers:
        assert time.monotonic() < deadline
        time.sleep(0.02)
