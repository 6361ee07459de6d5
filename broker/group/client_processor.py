"""Clients register, stay registered, and leave.

Lives here: HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG (RocketMQ ClientManageProcessor).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.client_table import ClientInfo, ClientTable
from pocketmq.broker.group.group_notifier import GroupNotifier
from pocketmq.broker.group.message_filter import TAGS_MAX, message_filter
from pocketmq.broker.group.retry_topics import UNIT_SUB_FLAG
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.request.executor import OneByOne
from pocketmq.broker.request.request_task import Drain, Task, encode_answer
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.limits import (
    CLIENT_ID_LENGTH_MAX,
    NAME_LENGTH_MAX,
    SUBSCRIPTION_LENGTH_MAX,
    TABLE_TOPIC_LENGTH_MAX,
    too_long,
)
from pocketmq.common.topics import check_group_name, retry_topic
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.client import CheckClientBody, ConsumerData, HeartbeatData, SubscriptionData
from pocketmq.remoting.server import Connection

CONSUME_PASSIVELY: Final = "CONSUME_PASSIVELY"
CLUSTERING: Final = "CLUSTERING"
CONSUME_FROM_LAST_OFFSET: Final = "CONSUME_FROM_LAST_OFFSET"
HEARTBEAT_BYTES_MAX: Final = 2 << 20
"""More than ten thousand subscriptions. No other thread runs while JSON is decoded: 16 MiB of it take 300 ms."""
GROUPS_MAX: Final = 4096
"""Groups in one heartbeat, and topics in one group's subscription."""


class HeartbeatIllegal(PocketMQError):
    """A heartbeat with missing names, or beyond the limits."""

    default_cause = Cause.BAD_REQUEST


@dataclass(slots=True, eq=False)
class ClientProcessor(OneByOne):
    """Serves codes 34, 35 and 46."""

    config: BrokerConfig
    clients: ClientTable[Connection]
    groups: SubscriptionGroups
    topics: TopicTable
    notifier: GroupNotifier
    persist_topics: Callable[[], object]
    clock: Clock
    log: EventLog
    _conflicts: dict[str, str] = field(init=False, default_factory=dict)
    """Group → the difference between its members' subscriptions that was logged last, while there is one."""

    def serve(self, task: Task, drain: Drain) -> None:
        """Answer one request."""
        code = task.request.code
        if code == RequestCode.HEART_BEAT:
            self._heartbeat(task)
        elif code == RequestCode.UNREGISTER_CLIENT:
            self._unregister(task)
        else:
            self._check(task)
        drain.answer(task, encode_answer(task.request))

    def _heartbeat(self, task: Task) -> None:
        request, connection = task.request, task.connection
        if len(request.body) > HEARTBEAT_BYTES_MAX:
            why = f"{len(request.body)} bytes, limit {HEARTBEAT_BYTES_MAX}"
            raise HeartbeatIllegal("heartbeat refused", why=why, hint="use fewer groups and topics in one client")
        data = decode_body(request.body, HeartbeatData)
        check_heartbeat(data)
        self._check_owner(task, data.client_id)
        client = ClientInfo(connection, data.client_id, request.language, request.version, self.clock.monotonic_ns())
        changed: list[str] = []
        retry_topic_created = False
        for consumer in data.consumer_data_set:
            group = consumer.group_name
            config = self.groups.find(group, request.session)
            if config is not None and self.topics.get(retry_topic(group)) is None:
                flag = UNIT_SUB_FLAG if consumer.unit_mode else 0
                self.topics.create(retry_topic(group), config.retry_queue_nums, topic_sys_flag=flag)
                retry_topic_created = True
            if self.clients.register_consumer(
                group,
                client,
                consumer.consume_type or CONSUME_PASSIVELY,
                consumer.message_model or CLUSTERING,
                consumer.consume_from_where or CONSUME_FROM_LAST_OFFSET,
                consumer.subscription_data_set,
            ):
                changed.append(group)
            self._log_conflict(group)
        for producer in data.producer_data_set:
            self.clients.register_producer(producer.group_name, client)
        if connection.closed:  # it closed while this heartbeat was queued: its close event came too early to forget it
            changed += self.clients.close(connection)
        self.notifier.members_changed(changed)
        if retry_topic_created:
            self.persist_topics()  # last: even with a full disk the members must learn of each other

    def _check_owner(self, task: Task, client_id: str) -> None:
        """Raise ``HeartbeatIllegal`` if another user's client has this id: replies to it would come here."""
        session = task.request.session
        if session is None:
            return
        other = self.clients.producer_connection(client_id)
        if other is None or other is task.connection or other.closed or other.speaker is None:
            return
        if other.speaker.user.username != session.user.username:
            raise HeartbeatIllegal(
                "heartbeat refused",
                why=f"a client of another user has the id {client_id[:80]!r}",
                hint="give each client an instance name of its own",
            )

    def _log_conflict(self, group: str) -> None:
        """Log how the members of a group differ, once for each difference; the members request it themselves."""
        text = self.clients.conflict(group)
        if text == self._conflicts.get(group, ""):
            return
        if text:
            if len(self._conflicts) >= GROUPS_MAX:
                self._conflicts.clear()
            self._conflicts[group] = text
            self.log.error(
                "subscriptions_differ",
                group=group,
                difference=text,
                consequence="the newest subscription counts for all members, and messages are lost to the group",
                hint="give every member of a group the same topics and filters, or use two groups",
            )
        else:
            del self._conflicts[group]
            self.log.info("subscriptions_agree", group=group)

    def _unregister(self, task: Task) -> None:
        header: Any = task.request.header
        if header.producer_group:
            self.clients.unregister_producer(header.producer_group, task.connection)
        if header.consumer_group and self.clients.unregister_consumer(header.consumer_group, task.connection):
            self.notifier.members_changed([header.consumer_group])

    def _check(self, task: Task) -> None:
        subscription = decode_body(task.request.body, CheckClientBody).subscription_data
        message_filter(
            subscription.expression_type,
            subscription.sub_string,
            properties_enabled=self.config.enable_property_filter,
        )


def check_heartbeat(data: HeartbeatData) -> None:
    """Raise ``HeartbeatIllegal`` or ``GroupIllegal`` unless names, texts and counts are within their limits."""
    if not data.client_id:
        raise HeartbeatIllegal("heartbeat refused", why="no client id")
    _check_texts([("clientID", data.client_id, CLIENT_ID_LENGTH_MAX)])
    if len(data.producer_data_set) > GROUPS_MAX or len(data.consumer_data_set) > GROUPS_MAX:
        raise HeartbeatIllegal("heartbeat refused", why=f"more than {GROUPS_MAX} groups")
    for producer in data.producer_data_set:
        check_group_name(producer.group_name)
    for consumer in data.consumer_data_set:
        check_group_name(consumer.group_name)
        _check_consumer(consumer)


def _check_consumer(consumer: ConsumerData) -> None:
    group = consumer.group_name
    if len(consumer.subscription_data_set) > GROUPS_MAX:
        raise HeartbeatIllegal("heartbeat refused", why=f"{group} subscribes to more than {GROUPS_MAX} topics")
    for subscription in consumer.subscription_data_set:
        _check_subscription(group, subscription)


def _check_subscription(group: str, subscription: SubscriptionData) -> None:
    _check_texts([(f"topic of a subscription of {group}", subscription.topic, TABLE_TOPIC_LENGTH_MAX)])
    of = f"{group} to {subscription.topic}"
    tags, codes = subscription.tags_set or (), subscription.code_set or ()
    _check_texts(
        [
            (f"subString of {of}", subscription.sub_string, SUBSCRIPTION_LENGTH_MAX),
            (f"expressionType of {of}", subscription.expression_type, NAME_LENGTH_MAX),
        ]
    )
    for name, count in (("tagsSet", len(tags)), ("codeSet", len(codes))):
        if count > TAGS_MAX:
            raise HeartbeatIllegal("heartbeat refused", why=f"{name} of {of} has {count} elements, limit {TAGS_MAX}")
    length = sum(map(len, tags))  # they are parts of the subString
    if length > SUBSCRIPTION_LENGTH_MAX:
        why = f"tagsSet of {of} has {length} characters, limit {SUBSCRIPTION_LENGTH_MAX}"
        raise HeartbeatIllegal("heartbeat refused", why=why)


def _check_texts(texts: list[tuple[str, str | None, int]]) -> None:
    why = too_long(texts)
    if why:
        raise HeartbeatIllegal("heartbeat refused", why=why, hint="shorten it, or check the client that sent it")
