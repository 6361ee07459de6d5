"""The table of groups: its bound."""

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.topic.topic_table import TableFull
from pocketmq.common.clock import ManualClock
from pocketmq.remoting.protocol.group import SubscriptionGroupConfigBody


def test_the_table_is_bounded() -> None:
    """A full table refuses other groups with the setting's name; those it has can change; a deletion makes room."""
    groups = SubscriptionGroups(BrokerConfig(subscription_groups_max=len(SYSTEM) + 2), ManualClock())
    groups.put(SubscriptionGroupConfigBody(group_name="a"))
    groups.put(SubscriptionGroupConfigBody(group_name="b"))
    with pytest.raises(TableFull, match="subscription_groups_max"):
        groups.put(SubscriptionGroupConfigBody(group_name="c"))
    groups.put(SubscriptionGroupConfigBody(group_name="b", retry_max_times=3))
    groups.delete("a")
    groups.put(SubscriptionGroupConfigBody(group_name="c"))
    assert groups.get("c") is not None


SYSTEM = SubscriptionGroups(BrokerConfig(), ManualClock()).names()
