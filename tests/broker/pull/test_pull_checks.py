"""Whether a group may read a queue: RocketMQ's codes and words, to the letter."""

from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.pull.pull_checks import SUBSCRIPTION_FLAG, PullChecks
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import ManualClock
from pocketmq.common.topics import TopicConfig
from pocketmq.remoting.protocol.group import SubscriptionGroupConfigBody
from tests.broker.refused_texts import said


def checks(model: str | None = None, subscription: Any = None, **settings: Any) -> PullChecks:
    config = BrokerConfig(broker_name="broker-a", auto_create_subscription_group=False, **settings)
    topics = TopicTable(config, ManualClock())
    topics.put(TopicConfig(topic_name="T", read_queue_nums=4))
    topics.put(TopicConfig(topic_name="WriteOnly", perm=2))
    groups = SubscriptionGroups(config, ManualClock())
    groups.put(SubscriptionGroupConfigBody(group_name="g", consume_broadcast_enable=False))
    groups.put(SubscriptionGroupConfigBody(group_name="off", consume_enable=False))
    clients: Any = SimpleNamespace(subscription=lambda group, topic: (model, subscription))
    return PullChecks(config, topics, groups, clients)


def test_what_a_group_reads() -> None:
    assert said(checks(broker_permission=2).check_group("g")) == (
        16,
        "the broker[broker-a] pulling message is forbidden",
    )
    assert said(checks().check_group("none")) == (26, "subscription group [none] does not exist")
    assert said(checks().check_group("off")) == (16, "subscription group no permission, off")
    assert checks().check_group("g") is None


def test_what_is_read_of_a_queue() -> None:
    assert said(checks().check_queue("None", 0)) == (17, "topic[None] not exist, apply first please!")
    assert said(checks().check_queue("WriteOnly", 0)) == (16, "the topic[WriteOnly] pulling message is forbidden")
    assert said(checks().check_queue("T", 4)) == (
        29,
        "queueId[4] is illegal, topic:[T] topicConfig.readQueueNums:[4]",
    )
    assert checks().check_queue("T", 3) is None


def asked(sub_version: int = 0, **fields: Any) -> Any:
    return SimpleNamespace(consumer_group="g", topic="T", sub_version=sub_version, **{"sys_flag": 0, **fields})


def subscribed(expression_type: str = "TAG", sub_string: str = "*") -> Any:
    return SimpleNamespace(expression_type=expression_type, sub_string=sub_string, sub_version=5)


@pytest.mark.parametrize(
    ("model", "subscription", "expected"),
    [
        (None, None, (24, "the consumer's group info not exist")),
        ("BROADCASTING", subscribed(), (16, "the consumer group[g] can not consume by broadcast way")),
        ("CLUSTERING", None, (24, "the consumer's subscription not exist")),
    ],
)
def test_what_is_read_of_a_subscription(model: str | None, subscription: Any, expected: tuple[int, str]) -> None:
    assert said(checks(model, subscription).filter_of(asked())) == expected


def test_a_subscription_that_is_too_old_or_wrong() -> None:
    assert said(checks("CLUSTERING", subscribed()).filter_of(asked(6))) == (
        25,
        "the consumer's subscription not latest",
    )
    wrong = asked(sys_flag=SUBSCRIPTION_FLAG, expression_type="SQL92", subscription="a >")
    code, text = said(checks(enable_property_filter=True).filter_of(wrong))
    assert code == 23
    assert text.startswith("parse the consumer's subscription failed: ")
    assert said(checks(enable_property_filter=False).filter_of(wrong)) == (
        1,
        "The broker does not support consumer to filter message by SQL92 (broker.enable_property_filter is off)",
    )
    found = checks("CLUSTERING", subscribed("SQL92", "a >"), enable_property_filter=True).filter_of(asked())
    code, text = said(found)
    assert code == 27
    assert text.startswith("The broker's consumer filter data is not exist!Your expression may be wrong! parse the")
