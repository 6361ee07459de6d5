"""The table of clients: changes are told, nothing of a connection stays, bounds hold."""

from typing import Any

import pytest

from pocketmq.broker.client_table import ClientInfo, ClientTable
from pocketmq.broker.topic_table import TableFull
from pocketmq.remoting.bodies import SubscriptionData


def info(connection: str, client_id: str = "c", now_ns: Any = 0) -> Any:
    return ClientInfo(connection, client_id, 3, 409, now_ns)


def consume(table: Any, connection: str, *topics: Any, group: str = "g", version: Any = 1, now_ns: Any = 0) -> Any:
    subscriptions = [SubscriptionData(topic=topic, sub_version=version) for topic in topics]
    client = info(connection, f"client-{connection}", now_ns)
    return table.register_consumer(group, client, "CONSUME_PASSIVELY", "CLUSTERING", "X", subscriptions)


def test_only_a_change_is_a_change() -> None:
    """New members and other topics are; the same heartbeat again is not."""
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
    """Who was not heard of since a time is forgotten; others stay."""
    table: ClientTable[str] = ClientTable(100)
    consume(table, "old", "A", now_ns=5)
    consume(table, "new", "A", now_ns=15)
    table.register_producer("p", info("producer", now_ns=1))
    connections, groups = table.expire(10)
    assert set(connections) == {"old", "producer"}
    assert groups == ["g"]
    assert len(table) == 1


def test_the_table_is_bounded() -> None:
    """One entry too many is refused and leaves no trace; what is known still renews."""
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
