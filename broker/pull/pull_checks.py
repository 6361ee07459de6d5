"""May this group read that queue, and what does the store's answer mean on the wire?

Lives here: ``PullChecks`` with RocketMQ's order of checks, codes and texts; ``pull_code``.
"""

from typing import Any, Final

from pocketmq.auth.session import Session
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.message_filter import FilterNotSupported, MessageFilter, message_filter
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.request.request_task import Refusal, refused
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common import refusals
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.sql_filter import SQL92_TYPE
from pocketmq.common.topics import Perm
from pocketmq.remoting.codes import ResponseCode

COMMIT_OFFSET_FLAG: Final = 0x1
SUSPEND_FLAG: Final = 0x2
SUBSCRIPTION_FLAG: Final = 0x4
"""Bits of a pull's sysFlag (RocketMQ PullSysFlag)."""
PARSE_FAILED: Final = int(ResponseCode.SUBSCRIPTION_PARSE_FAILED)
BROADCASTING: Final = "BROADCASTING"
READ: Final = int(Perm.READ)
"""As a plain int: the operators of an IntFlag cost a microsecond each."""

_AT_END: Final = frozenset({"OFFSET_OVERFLOW_ONE", "OFFSET_FOUND_NULL"})
_EMPTY: Final = frozenset({"NO_MESSAGE_IN_QUEUE", "NO_MATCHED_LOGIC_QUEUE"})
_LOOK_ON: Final = frozenset({"NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING"})


def pull_code(status_name: str, offset: int) -> int:
    """Return the response code for a get status (docs/rocketmq.md, "Reading a queue")."""
    if status_name == "FOUND":
        return int(ResponseCode.SUCCESS)
    if status_name in _AT_END or (status_name in _EMPTY and offset == 0):
        return int(ResponseCode.PULL_NOT_FOUND)
    if status_name in _LOOK_ON:
        return int(ResponseCode.PULL_RETRY_IMMEDIATELY)
    return int(ResponseCode.PULL_OFFSET_MOVED)


class PullChecks:
    """The checks of RocketMQ's PullMessageProcessor, in its order."""

    def __init__(
        self, config: BrokerConfig, topics: TopicTable, groups: SubscriptionGroups, clients: ClientTable[Any]
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._clients = clients

    def check_group(self, group: str, session: Session | None = None) -> Refusal | None:
        """Say why ``group`` may not consume from this broker. ``session``: of the user who pulls."""
        if not self._config.broker_permission & READ:
            return refused(Cause.NO_PERMISSION, refusals.BROKER_PULLS_FORBIDDEN, self._config.broker_name)
        try:
            known = self._groups.find(group, session)
        except PocketMQError as error:
            return Refusal(error.code, str(error), error.cause)
        if known is None:
            return refused(Cause.BAD_REQUEST, refusals.GROUP_NOT_EXIST, group)
        if not known.consume_enable:
            return refused(Cause.NO_PERMISSION, refusals.GROUP_FORBIDDEN, group)
        return None

    def check_queue(self, topic: str, queue_id: int) -> Refusal | None:
        """Say why a queue cannot be read."""
        config = self._topics.get(topic)
        if config is None:
            return refused(Cause.NO_ROUTE, refusals.TOPIC_NOT_EXIST, topic[:128])
        if not config.perm & READ:
            return refused(Cause.NO_PERMISSION, refusals.TOPIC_PULLS_FORBIDDEN, topic)
        if not 0 <= queue_id < config.read_queue_nums:
            return refused(Cause.BAD_REQUEST, refusals.PULL_QUEUE_ILLEGAL, queue_id, topic, config.read_queue_nums)
        return None

    def filter_of(self, header: Any) -> MessageFilter | Refusal:
        """Return the filter of a pull: from the request, or from what the group's heartbeat subscribed to."""
        if header.sys_flag & SUBSCRIPTION_FLAG:
            return self.parsed(header.expression_type, header.subscription)
        group, topic = header.consumer_group, header.topic
        model, subscription = self._clients.subscription(group, topic)
        if model is None:
            return refused(Cause.BAD_REQUEST, refusals.GROUP_INFO_NOT_EXIST)
        if model == BROADCASTING:
            known = self._groups.get(group)
            if known is not None and not known.consume_broadcast_enable:
                return refused(Cause.NO_PERMISSION, refusals.BROADCAST_FORBIDDEN, group)
        if subscription is None:
            return refused(Cause.BAD_REQUEST, refusals.SUBSCRIPTION_NOT_EXIST)
        if subscription.sub_version < header.sub_version:
            return refused(Cause.BAD_REQUEST, refusals.SUBSCRIPTION_NOT_LATEST)
        found = self.parsed(subscription.expression_type, subscription.sub_string)
        if isinstance(found, Refusal) and subscription.expression_type == SQL92_TYPE and found.code == PARSE_FAILED:
            return refused(Cause.BAD_REQUEST, refusals.FILTER_NOT_EXIST, found.remark)
        return found

    def parsed(self, expression_type: str | None, expression: str | None) -> MessageFilter | Refusal:
        """Return a filter, or why it is refused."""
        try:
            return message_filter(expression_type, expression, properties_enabled=self._config.enable_property_filter)
        except FilterNotSupported as error:
            return Refusal(int(error.code), str(error), Cause.BAD_REQUEST)
        except PocketMQError as error:
            text = refusals.SUBSCRIPTION_NOT_PARSED.template % error.why
            return Refusal(int(error.code), text, Cause.BAD_REQUEST)
