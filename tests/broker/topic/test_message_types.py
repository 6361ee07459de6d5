"""Attributes of topics: RocketMQ's form of a change, and the types of messages."""

from typing import Any

import pytest

from pocketmq.broker.topic.message_types import (
    AttributeIllegal,
    changes_of,
    check_changes,
    message_type,
    message_type_of,
)
from pocketmq.common.topics import TopicConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import decode_body, encode_body
from pocketmq.remoting.protocol.group import GroupRequestHeader, GroupRetryPolicy, SubscriptionGroupConfigBody
from pocketmq.remoting.protocol.topic import (
    CreateTopicListBody,
    CreateTopicRequestHeader,
    TopicConfigBody,
    TopicRequestHeader,
)
from tests.broker.conftest import Client, Harness


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("", {}),
        ("+message.type=FIFO", {"message.type": "FIFO"}),
        ("+message.type=MIXED,-queue.type", {"message.type": "MIXED", "queue.type": None}),
        ("+cleanup.policy=DELETE", {"cleanup.policy": "DELETE"}),
    ],
)
def test_changes(text: str, changes: dict[str, Any]) -> None:
    """A plus sets, a minus removes."""
    assert changes_of(text) == changes


@pytest.mark.parametrize(
    "text",
    [
        "message.type=FIFO",
        "+message.type=LIFO",
        "+message.type",
        "+nobody=1",
        "+queue.type=BatchCQ",
        "-",
        "+",
        "x" * 2000,
        "+message.type=FIFO,+message.type=FIFO",
    ],
)
def test_wrong_changes_are_refused(text: str) -> None:
    """In words."""
    with pytest.raises(AttributeIllegal):
        changes_of(text)


def test_the_type_of_a_message_and_of_a_topic() -> None:
    """By its properties; a topic without an attribute takes all."""
    assert message_type({"TRAN_MSG": "true", "DELAY": "3"}) == "TRANSACTION"
    assert message_type({"TIMER_DELIVER_MS": "3", "__SHARDINGKEY": "k"}) == "DELAY"
    assert message_type({"__SHARDINGKEY": "k"}) == "FIFO"
    assert message_type({}) == "NORMAL"
    for value, kind in ((None, "MIXED"), ("FIFO", "FIFO"), ("UNSPECIFIED", "MIXED"), ("?", "MIXED")):
        attributes = {} if value is None else {"message.type": value}
        assert message_type_of(TopicConfig(topic_name="T", attributes=attributes)) == kind
    assert check_changes({"+message.type": "DELAY"}) == {"message.type": "DELAY"}


async def test_they_are_kept_and_listed(harness: Harness) -> None:
    """Over changes of other settings and a restart; also in a list of topics, and the retry policy of a group."""
    app = await harness.broker()
    client = await harness.client(app)

    async def put(attributes: str) -> int:
        header = CreateTopicRequestHeader("T", "TBW102", 4, 4, 6, "SINGLE_TAG", 0, False, attributes)
        return int((await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code)

    async def kind(client: Client, topic: str = "T") -> str | None:
        answer = await client.ask(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic))
        return (decode_body(answer.body, TopicConfigBody).attributes or {}).get("message.type")

    assert await put("+message.type=FIFO") == 0
    assert await put("") == 0
    assert await kind(client) == "FIFO"
    assert await put("+message.type=DELAY") == 0
    assert await kind(client) == "DELAY"
    assert await put("+message.type=?") == 1
    body = CreateTopicListBody([TopicConfigBody("U", attributes={"+message.type": "TRANSACTION"})])
    assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, encode_body(body))).code == 0
    policy = GroupRetryPolicy("EXPONENTIAL", {"initial": 5000, "max": 7_200_000, "multiplier": 2})
    group = encode_body(SubscriptionGroupConfigBody(group_name="g", group_retry_policy=policy))
    assert b'"groupRetryPolicy":{"type":"EXPONENTIAL"' in group
    assert (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)).code == 0
    await app.stop()
    client = await harness.client(await harness.broker())
    assert [await kind(client), await kind(client, "U")] == ["DELAY", "TRANSACTION"]
    answer = await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupRequestHeader("g"))
    assert decode_body(answer.body, SubscriptionGroupConfigBody).group_retry_policy == policy
