"""How ``topic create`` decides on several brokers of which some have the topic."""

from collections.abc import Mapping
from typing import Any

import pytest

from pocketmq.cli.admin.topic_create import Asked, MessagesHidden, TopicDiffers, create_topic, settings_text
from pocketmq.client.admin.admin import QueueStatus
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.remoting.protocol.topic import TopicConfigBody

MASTERS = {"a": "a:1", "b": "b:1"}


class FakeAdmin:
    """Brokers with settings of a topic and messages in its queues; ``puts`` keeps the requests."""

    def __init__(self, settings: Mapping[str, TopicConfigBody], counts: Mapping[str, Mapping[int, int]] = {}) -> None:
        self.settings = settings
        self.counts = counts
        self.puts: dict[str, dict[str, Any]] = {}

    async def topic_settings(self, topic: str, addresses: Mapping[str, str]) -> dict[str, TopicConfigBody]:
        return {name: self.settings[name] for name in addresses if name in self.settings}

    async def topic_queues(self, topic: str, address: str) -> list[QueueStatus]:
        name = address.partition(":")[0]
        return [QueueStatus(MessageQueue(topic, name, at), 5, 5 + count, 0) for at, count in self.counts[name].items()]

    async def create_topic(self, topic: str, *, broker: str, **settings: Any) -> None:
        self.puts[broker] = settings


def config(queues: int, **others: Any) -> TopicConfigBody:
    return TopicConfigBody("T", queues, queues, **others)


async def create(admin: FakeAdmin, asked: Asked, **how: bool) -> None:
    await create_topic(admin, "T", MASTERS, asked, **how)  # type: ignore[arg-type]


def sent(queues: int, **others: Any) -> dict[str, Any]:
    plain = {"perm": 6, "topic_filter_type": "SINGLE_TAG", "topic_sys_flag": 0, "order": False}
    return {"read_queues": queues, "write_queues": queues, **plain, **others}


async def test_each_broker_is_compared_and_those_without_it_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    admin = FakeAdmin({"a": config(4)})
    await create(admin, Asked(queues=4))
    assert admin.puts == {"b": sent(4)}
    assert capsys.readouterr().out == "T exists already: 4 queues on a\ncreated T: 4 queues on b\n"


async def test_one_broker_that_differs_stops_all_before_anything_is_changed() -> None:
    admin = FakeAdmin({"b": config(8, perm=4)})
    with pytest.raises(TopicDiffers, match="8 queues, permission R on b; asked for: 4 queues, permission RW, not ord"):
        await create(admin, Asked(4, 6, False))
    assert not admin.puts


async def test_if_not_exists_creates_it_where_it_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    admin = FakeAdmin({"a": config(8, order=True)})
    await create(admin, Asked(queues=1, perm=2), if_not_exists=True)
    assert admin.puts == {"b": sent(1, perm=2)}
    told = capsys.readouterr()
    assert told.out == "created T: 1 queue, permission W on b\n"
    assert "8 queues, permission RW, ordered on a; asked for: 1 queue, permission W (left as it is)" in told.err


async def test_an_update_keeps_what_was_not_named() -> None:
    """Filter type, flags, INHERIT, unequal numbers of queues and the mark of order stay."""
    mixed = TopicConfigBody("T", 8, 4, 7, "MULTI_TAG", 3, order=True)
    admin = FakeAdmin({"a": mixed, "b": config(8)}, {"a": {}, "b": {}})
    await create(admin, Asked(perm=4), update=True)
    assert admin.puts == {
        "a": {
            "read_queues": 8,
            "write_queues": 4,
            "perm": 5,
            "topic_filter_type": "MULTI_TAG",
            "topic_sys_flag": 3,
            "order": True,
        },
        "b": sent(8, perm=4),
    }
    assert settings_text(mixed) == "8 read and 4 write queues, permission RW, ordered"


async def test_fewer_queues_are_refused_while_any_broker_would_hide_messages() -> None:
    """Queues that are not readable now, and empty ones, do not matter."""
    unread = TopicConfigBody("T", 2, 4)
    admin = FakeAdmin({"a": config(4), "b": unread}, {"a": {0: 9, 1: 0, 2: 1, 3: 0}, "b": {0: 1, 1: 0, 2: 7, 3: 7}})
    with pytest.raises(MessagesHidden, match="a holds 1 message in 1 queue, id 2 and above"):
        await create(admin, Asked(queues=1), update=True)
    assert not admin.puts
    with pytest.raises(MessagesHidden):
        await create(admin, Asked(queues=2), update=True)
    await create(admin, Asked(queues=3), update=True)
    assert admin.puts == {"a": sent(3), "b": sent(3)}
    await create(admin, Asked(queues=1), update=True, force=True)
    assert admin.puts == {"a": sent(1), "b": sent(1)}
