"""Administration by program: topics, groups, messages, locks, transactions, dead letters, replication.

``admin`` is the face (``from pocketmq.client.admin import Admin``); ``query`` finds messages, ``dead_letters`` lists
and resends them, ``trace_path`` puts a trace together, ``lock_admin``, ``transaction_admin`` and ``ha_admin``
administer their areas, ``promotion`` and ``promotion_rules`` promote a slave across nodes.

Commands and tables for people are ``cli.admin`` and ``cli.messages``.
"""

from pocketmq.client.admin.admin import (
    Admin,
    GroupDescription,
    NotFound,
    QueueProgress,
    QueueStatus,
    TopicDescription,
)
from pocketmq.client.admin.group_admin import GroupMove, GroupOnline

__all__ = [
    "Admin",
    "GroupDescription",
    "GroupMove",
    "GroupOnline",
    "NotFound",
    "QueueProgress",
    "QueueStatus",
    "TopicDescription",
]
