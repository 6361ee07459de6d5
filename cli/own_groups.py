"""Groups that RocketMQ or this command line made for itself: lists and completions leave them out.

Lives here: ``is_own_group``.
"""

from typing import Final

from pocketmq.common.topics import SYSTEM_GROUPS

_OF_COMMANDS: Final = frozenset({"pocketmq-cli", "pocketmq-reply"})
_RESERVED: Final = "CID_RMQ_SYS_"
"""RocketMQ MixAll.isSysConsumerGroup. Other names with ``CID_`` are those of users: it was Alibaba's custom."""


def is_own_group(group: str) -> bool:
    """Return whether a group is none of the users'."""
    return group in _OF_COMMANDS or group in SYSTEM_GROUPS or group.startswith(_RESERVED)
