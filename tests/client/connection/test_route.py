"""Routes, built from name servers' answers, and their cache."""

from typing import Any

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import ROUTE_BROKERS_MAX, ROUTE_QUEUES_MAX, RouteTable, route_from_data
from pocketmq.remoting.protocol.namesrv import BrokerData, QueueData, TopicRouteData


def route_data(**perms: Any) -> Any:
    return TopicRouteData(
        queue_datas=[QueueData(name, read_queue_nums=3, write_queue_nums=2, perm=perm) for name, perm in perms.items()],
        broker_datas=[
            BrokerData("c", name, {"0": f"{name}:10911", "1": f"{name}:10921"}) for name in perms if name != "lost"
        ],
    )


def test_queues_follow_the_permission() -> None:
    """Write queues need W, read queues need R; both are in broker and queue order."""
    route = route_from_data("T", route_data(b=6, a=2, c=4))
    assert route.write_queues == tuple(MessageQueue("T", name, number) for name in "ab" for number in range(2))
    assert route.read_queues == tuple(MessageQueue("T", name, number) for name in "bc" for number in range(3))
    assert route.write_brokers() == {"a", "b"}
    assert route.brokers["a"].master == "a:10911"


def test_a_broker_without_addresses_or_master_takes_no_sends() -> None:
    """A broker without an address has no queues; a lone slave is read only."""
    data = route_data(a=6, lost=6)
    data.broker_datas[0].broker_addrs = {"1": "a:10921", "junk": "x"}
    route = route_from_data("T", data)
    assert route.write_queues == ()
    assert {queue.broker_name for queue in route.read_queues} == {"a"}
    assert route.brokers["a"].readable() == "a:10921"


def test_a_borrowed_route_pretends_four_queues() -> None:
    """The route of TBW102 stands for a topic that its first send creates: at most 4 queues, none to read."""
    data = TopicRouteData(
        queue_datas=[QueueData("a", read_queue_nums=8, write_queue_nums=8, perm=7)],
        broker_datas=[BrokerData("c", "a", {"0": "a:1"})],
    )
    route = route_from_data("New", data, borrowed=True)
    assert [queue.queue_id for queue in route.write_queues] == [0, 1, 2, 3]
    assert route.read_queues == ()
    assert route.borrowed
    data.queue_datas[0].write_queue_nums = 2
    route = route_from_data("New", data, borrowed=True)
    assert len(route.write_queues) == 2, "the broker creates no more than the default topic's queues to write"


def test_a_borrowed_route_is_due_at_once() -> None:
    """The topic may exist by now, with other queues."""
    table = RouteTable(refresh_after_ms=10)
    table.put(route_from_data("New", route_data(a=7), borrowed=True), 0)
    table.put(route_from_data("T", route_data(a=6)), 0)
    assert table.due(0) == ["New"]


def test_a_queue_that_the_broker_lacks_drops_the_route_that_has_it() -> None:
    """A route fetched since, without the queue, stays."""
    table = RouteTable()
    table.put(route_from_data("T", route_data(a=6)), 0)
    table.forget_queue(MessageQueue("T", "a", 2))
    table.forget_queue(MessageQueue("Other", "a", 0))
    assert table.get("T") is not None
    table.forget_queue(MessageQueue("T", "a", 1))
    assert table.get("T") is None


def test_the_table_says_what_changed_and_what_is_due() -> None:
    """A route is due after its time; replacing it raises no error, and only a different route counts as a change."""
    table = RouteTable(refresh_after_ms=10)
    route = route_from_data("T", route_data(a=6))
    assert table.get("T") is None
    assert table.put(route, 0)
    assert not table.put(route_from_data("T", route_data(a=6)), 5_000_000)
    assert table.put(route_from_data("T", route_data(a=6, b=6)), 6_000_000)
    assert table.due(15_999_999) == []
    assert table.due(16_000_000) == ["T"]
    known = table.broker("b")
    assert known is not None
    assert known.master == "b:10911"
    assert table.broker("z") is None
    table.forget("T")
    assert table.topics() == []


def test_the_table_is_bounded() -> None:
    """One topic more than the maximum drops the oldest."""
    table = RouteTable(topics_max=2)
    for topic in ("A", "B", "C"):
        table.put(route_from_data(topic, route_data(a=6)), 0)
    assert table.topics() == ["B", "C"]


def test_a_refresh_without_news_keeps_the_route() -> None:
    """Whoever holds the old object need not look again; a change or a loss moves the counter."""
    table = RouteTable(topics_max=1)
    route = route_from_data("T", route_data(a=6))
    table.put(route, 0)
    assert table.changes == 1
    table.put(route_from_data("T", route_data(a=6)), 5)
    assert table.get("T") is route
    assert (table.changes, table.is_older("T", 0, 5)) == (1, False)
    table.put(route_from_data("T", route_data(b=6)), 6)
    assert (table.changes, table.get("T") is route) == (2, False)
    table.forget("T")
    assert table.changes == 3
    table.put(route, 7)
    table.put(route_from_data("U", route_data(a=6)), 8)  # drops T
    assert (table.changes, table.get("T")) == (5, None)


def test_an_absurd_route_is_cut_and_says_so() -> None:
    """3,276,800 queues would take a gigabyte and block the loop for seconds."""
    data = TopicRouteData(
        queue_datas=[QueueData(f"b{number}", 65_536, 65_536, 6, 0) for number in range(50)],
        broker_datas=[BrokerData("c", f"b{number}", {"0": "a:1"}) for number in range(2_000)],
    )
    route = route_from_data("T", data)
    assert len(route.write_queues) == len(route.read_queues) == ROUTE_QUEUES_MAX
    assert len(route.brokers) == ROUTE_BROKERS_MAX
    assert route.left_out == "2000 brokers and 3276800 queues, of which 1000 and 100000 are used"
    assert route_from_data("T", route_data(a=6)).left_out == ""


def test_a_legal_topic_with_most_queues_is_whole() -> None:
    """65,536 queues are a broker's limit."""
    data = TopicRouteData(
        queue_datas=[QueueData("b", 65_536, 65_536, 6, 0)], broker_datas=[BrokerData("c", "b", {"0": "a:1"})]
    )
    route = route_from_data("T", data)
    assert (len(route.read_queues), route.left_out) == (65_536, "")
