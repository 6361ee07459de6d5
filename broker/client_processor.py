"""Clients come, stay and go.

Lives here: HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG (RocketMQ ClientManageProcessor).
Not here: the table (``client_table``), telling groups (``group_notifier``), connections that break (``app``).
"""

from collections.abc import Callable
from typing import Any, Final

from pocketmq.broker.client_table import ClientInfo, ClientTable
from pocketmq.broker.executor import OneByOne
from pocketmq.broker.group_notifier import GroupNotifier
from pocketmq.broker.subscription_groups import SubscriptionGroups
from pocketmq.broker.tag_filter import TAG_TYPE, parse_tags
from pocketmq.broker.task import Buffers, Drain, Task, encode_answer
from pocketmq.broker.topic_table import TopicTable
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.topics import check_group_name, retry_topic
from pocketmq.remoting.bodies import CheckClientBody, HeartbeatData, decode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.server import Connection

UNIT_SUB_FLAG: Final = 0x2
"""Topic sysFlag of a retry topic in a unit (RocketMQ TopicSysFlag)."""
CONSUME_PASSIVELY: Final = "CONSUME_PASSIVELY"
CLUSTERING: Final = "CLUSTERING"
CONSUME_FROM_LAST_OFFSET: Final = "CONSUME_FROM_LAST_OFFSET"
GROUPS_MAX: Final = 4096
"""Groups, and topics of one subscription, in one heartbeat."""


class HeartbeatIllegal(PocketMQError):
    """A heartbeat that cannot be meant."""

    default_cause = Cause.BAD_REQUEST


class ClientProcessor(OneByOne):
    """Serves codes 34, 35 and 46."""

    def __init__(
        self,
        clients: ClientTable[Connection],
        groups: SubscriptionGroups,
        topics: TopicTable,
        notifier: GroupNotifier,
        persist_topics: Callable[[], object],
        clock: Clock,
    ) -> None:
        self._clients = clients
        self._groups = groups
        self._topics = topics
        self._notifier = notifier
        self._persist_topics = persist_topics
        self._clock = clock

    def serve(self, task: Task, drain: Drain) -> None:
        """Answer one request."""
        code = task.request.code
        if code == RequestCode.HEART_BEAT:
            self._heartbeat(task)
            drain.answer(task, encode_answer(task.request))
        elif code == RequestCode.UNREGISTER_CLIENT:
            self._unregister(task)
            drain.answer(task, encode_answer(task.request))
        else:
            drain.answer(task, self._check(task))

    def _heartbeat(self, task: Task) -> None:
        request, connection = task.request, task.connection
        data = decode_body(request.body, HeartbeatData)
        if not data.client_id:
            raise HeartbeatIllegal("heartbeat refused", why="no client id")
        if len(data.producer_data_set) > GROUPS_MAX or len(data.consumer_data_set) > GROUPS_MAX:
            raise HeartbeatIllegal("heartbeat refused", why=f"more than {GROUPS_MAX} groups")
        client = ClientInfo(connection, data.client_id, request.language, request.version, self._clock.monotonic_ns())
        changed: list[str] = []
        retry_topic_created = False
        for consumer in data.consumer_data_set:
            group = consumer.group_name
            check_group_name(group)
            if len(consumer.subscription_data_set) > GROUPS_MAX:
                raise HeartbeatIllegal("heartbeat refused", why=f"{group} subscribes to more than {GROUPS_MAX} topics")
            config = self._groups.find(group)
            if config is not None and self._topics.get(retry_topic(group)) is None:
                flag = UNIT_SUB_FLAG if consumer.unit_mode else 0
                self._topics.create(retry_topic(group), config.retry_queue_nums, topic_sys_flag=flag)
                retry_topic_created = True
            if self._clients.register_consumer(
                group,
                client,
                consumer.consume_type or CONSUME_PASSIVELY,
                consumer.message_model or CLUSTERING,
                consumer.consume_from_where or CONSUME_FROM_LAST_OFFSET,
                consumer.subscription_data_set,
            ):
                changed.append(group)
        for producer in data.producer_data_set:
            check_group_name(producer.group_name)
            self._clients.register_producer(producer.group_name, client)
        if connection.closed:  # it closed while this heartbeat was in the queue: nobody else would forget it
            changed += self._clients.close(connection)
        self._notifier.members_changed(changed)
        if retry_topic_created:
            self._persist_topics()  # last: a full disk must not keep the members from hearing of each other

    def _unregister(self, task: Task) -> None:
        header: Any = task.request.header
        if header.producer_group:
            self._clients.unregister_producer(header.producer_group, task.connection)
        if header.consumer_group and self._clients.unregister_consumer(header.consumer_group, task.connection):
            self._notifier.members_changed([header.consumer_group])

    def _check(self, task: Task) -> Buffers:
        subscription = decode_body(task.request.body, CheckClientBody).subscription_data
        if subscription.expression_type in (None, "", TAG_TYPE):
            parse_tags(subscription.sub_string)
            return encode_answer(task.request)
        text = f"The broker does not support consumer to filter message by {subscription.expression_type}"
        return encode_answer(task.request, ResponseCode.SYSTEM_ERROR, remark=text)
