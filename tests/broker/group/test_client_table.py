"""The table of clients: it reports changes, forgets closed connections completely, and keeps its bounds."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.group.client_table import ClientInfo, ClientTable
from pocketmq.broker.topic.topic_table import TableFull
from pocketmq.remoting.protocol.client import SubscriptionData


def info(connection: str, client_id: str = "c", now_ns: Any = 0) -> Any:
    return ClientInfo(connection, client_id, 3, 409, now_ns)


def consume(table: Any, connection: str, *topics: Any, group: str = "g", version: Any = 1, now_ns: Any = 0) -> Any:
    subscriptions = [SubscriptionData(topic=topic, sub_version=version) for topic in topics]
    client = info(connection, f"client-{connection}", now_ns)
    return table.register_consumer(group, client, "CONSUME_PASSIVELY", "CLUSTERING", "X", subscriptions)


def test_only_a_change_is_a_change() -> None:
    """New members and other topics count as changes; a repeated heartbeat does not."""
    table: ClientTable[str] = ClientTable(100)
    assert consume(table, "one", "A")
    assert not consume(table, "one", "A")
    assert not consume(table, "one", "A", version=2)
    assert consume(table, "two", "A")
    assert consume(table, "two", "A", "B")
    assert consume(table, "one", "A")
    group = table.consumer_group("g")
    assert group is not None
    assert sorted(group.client_ids()) == ["client-one", "client-two"]
    subscription = table.subscription("g", "A")[1]
    assert subscription is not None
    assert subscription.sub_version == 2
    assert table.subscription("g", "B") == ("CLUSTERING", None)
    assert table.groups_subscribed_to("A") == ["g"]


def test_the_list_of_members_is_made_once_for_each_change() -> None:
    """The same bytes until a member joins, leaves, or changes its id."""
    table: ClientTable[str] = ClientTable(100)
    assert table.id_list("g") == b""
    consume(table, "one", "A")
    consume(table, "two", "A")
    known = table.id_list("g")
    assert msgspec.json.decode(known) == {"consumerIdList": ["client-one", "client-two"]}
    consume(table, "two", "A", version=2)
    assert table.id_list("g") is known
    table.register_consumer("g", info("two", "other"), "P", "CLUSTERING", "X", [])
    assert b"other" in table.id_list("g")
    table.close("one")
    assert msgspec.json.decode(table.id_list("g")) == {"consumerIdList": ["other"]}


def test_members_that_differ_are_compared_once() -> None:
    """While the two that the broker names still differ, a third one changes nothing; without them it looks again."""
    table: ClientTable[str] = ClientTable(100)
    for member, topic in (("one", "A"), ("two", "B"), ("three", "C")):
        consume(table, member, topic)
    text = table.conflict("g")
    assert "client-one" in text
    assert "client-two" in text
    table.close("one")
    assert "client-three" in table.conflict("g")
    consume(table, "three", "B")
    assert table.conflict("g") == ""
    consume(table, "three", "D")
    assert "client-two" in table.conflict("g")
    table.close("two")
    assert table.conflict("g") == ""
    table.close("three")
    assert table.size_bytes == 0


def test_a_closed_connection_leaves_every_group() -> None:
    """Producers and consumers of the connection go; groups that lost a member are named."""
    table: ClientTable[str] = ClientTable(100)
    consume(table, "one", "A")
    consume(table, "one", "A", group="h")
    consume(table, "two", "A")
    table.register_producer("p", info("one"))
    assert table.close("one") == ["g", "h"]
    assert table.close("one") == []
    assert table.producers("p") == []
    assert table.consumer_group("h") is None
    assert len(table) == 1
    assert table.unregister_consumer("g", "two")
    assert not table.unregister_consumer("g", "two")
    assert len(table) == 0
    assert not table._groups_of


def test_silent_clients_expire() -> None:
    """Clients without a heartbeat since a given time are forgotten; others stay."""
    table: ClientTable[str] = ClientTable(100)
    consume(table, "old", "A", now_ns=5)
    consume(table, "new", "A", now_ns=15)
    table.register_producer("p", info("producer", now_ns=1))
    connections, groups = table.expire(10)
    assert set(connections) == {"old", "producer"}
    assert groups == ["g"]
    assert len(table) == 1


def test_the_table_is_bounded() -> None:
    """One entry too many is refused and leaves no trace; known clients can still renew."""
    table: ClientTable[str] = ClientTable(2)
    consume(table, "one", "A")
    table.register_producer("p", info("one"))
    with pytest.raises(TableFull):
        consume(table, "two", "A")
    with pytest.raises(TableFull):
        table.register_producer("p", info("two"))
    assert not consume(table, "one", "A")
    assert len(table) == 2
    assert list(table._groups_of) == ["one"]


def test_a_producer_is_found_by_its_client_id_until_it_has_left() -> None:
    """The newest connection of an id counts; it is known while it has a producer group."""
    table: ClientTable[str] = ClientTable(10)
    table.register_producer("g", ClientInfo("c1", "id", 0, 0, 1))
    table.register_producer("h", ClientInfo("c1", "id", 0, 0, 1))
    table.unregister_producer("g", "c1")
    assert table.producer_connection("id") == "c1"
    table.register_producer("g", ClientInfo("c2", "id", 0, 0, 2))
    table.close("c1")
    assert table.producer_connection("id") == "c2"
    table.unregister_producer("g", "c2")
    assert table.producer_connection("id") is None
    table.register_producer("g", ClientInfo("c3", "id", 0, 0, 3))
    table.expire(10)
    assert table.producer_connection("id") is None


def test_bytes_are_bounded_and_what_is_known_goes_on() -> None:
    """A heartbeat that exceeds the memory limit changes nothing; a repeated heartbeat is always accepted."""
    table: ClientTable[str] = ClientTable(100_000, 64 << 10)
    assert consume(table, "one", "A")

    def grow() -> None:
        for number in range(100):
            consume(table, "two", *(f"{topic}-{'T' * 100}" for topic in range(number)), version=number, group="big")

    with pytest.raises(TableFull, match="limit 65536"):
        grow()
    assert table.size_bytes <= 64 << 10
    before = table.size_bytes
    with pytest.raises(TableFull):
        consume(table, "three", *(f"{topic}-{'T' * 100}" for topic in range(200)), group="third")
    with pytest.raises(TableFull):
        table.register_producer("p", info("four", "c" * 65_536))
    assert table.consumer_group("third") is None
    assert table.producers("p") == []
    assert table.producer_connection("c" * 65_536) is None
    assert table.size_bytes == before
    assert not consume(table, "one", "A")
    table.close("two")
    assert consume(table, "three", "A", "B")


def test_members_that_want_the_same_share_it() -> None:
    """Many members of one group with many topics are ordinary: each costs an entry, not a copy of the topics."""
    table: ClientTable[str] = ClientTable(100_000)
    names = [f"topic-{number}" for number in range(64)]
    consume(table, "0", *names)
    one = table.size_bytes
    for number in range(1, 100):
        consume(table, str(number), *names)
    assert table.size_bytes - one < 99 * 2000


def test_a_client_that_changes_its_id_leaves_no_old_one() -> None:
    """One connection cannot fill the table of ids, whatever its heartbeats say."""
    table: ClientTable[str] = ClientTable(100)
    for number in range(1000):
        table.register_producer("p", info("one", f"id-{number}"))
    table.register_producer("q", info("one", "other"))
    assert table._producer_ids == {"id-999": "one", "other": "one"}
    table.unregister_producer("p", "one")
    assert table._producer_ids == {"other": "one"}
    table.close("one")
    assert not table._producer_ids
    assert table.size_bytes == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["consume", "produce", "leave", "stop", "close", "expire"]),
            st.sampled_from("xyz"),
            st.sampled_from("gh"),
            st.sets(st.sampled_from("ABC")),
            st.integers(0, 3),
            st.text(max_size=3),
        ),
        max_size=40,
    )
)
def test_any_order_of_events_keeps_the_sum_of_bytes(events: Any) -> None:
    """After any changes, the table is empty when all clients have left."""
    table: ClientTable[str] = ClientTable(100)
    for now, (what, connection, group, topics, version, text) in enumerate(events):
        if what == "consume":
            subscriptions = [SubscriptionData(topic=each, sub_string=text, sub_version=version) for each in topics]
            table.register_consumer(group, info(connection, text, now), "P", "CLUSTERING", "X", subscriptions)
        elif what == "produce":
            table.register_producer(group, info(connection, text, now))
        elif what == "leave":
            table.unregister_consumer(group, connection)
        elif what == "stop":
            table.unregister_producer(group, connection)
        elif what == "close":
            table.close(connection)
        else:
            table.expire(now - version)
        assert (table.size_bytes > 0) == (len(table) > 0)
    for connection in "xyz":
        table.close(connection)
    assert table.size_bytes == 0
    assert len(table) == 0
    assert not table._producer_ids
