"""Administration: topics, groups, brokers and single messages, by RocketMQ's codes through name server and brokers.

Lives here: ``Admin`` and its result types. The command line uses it; applications may, too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pocketmq.client.admin.group_admin import delete_group, move_group, plan_moves
from pocketmq.client.connection.instance import BrokerConnection, ClientInstance, check_answer
from pocketmq.client.connection.own_instance import instance_for
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute, route_from_data
from pocketmq.client.errors import BrokerAnswerError, ClientError, NotStarted
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.pull.offsets import StartPosition
from pocketmq.common.errors import Cause, MessageIllegal, PocketMQError
from pocketmq.common.java_properties import write_properties
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.message_id import parse_offset_msg_id
from pocketmq.common.record import host_text
from pocketmq.common.record_codec import received_message
from pocketmq.common.topics import AUTO_CREATE_TOPIC, check_group_name, check_topic_name, retry_topic
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import KVTable, decode_body
from pocketmq.remoting.protocol.client import ConsumerGroupRequestHeader
from pocketmq.remoting.protocol.group import (
    Connection,
    ConsumerConnection,
    ConsumeStats,
    ConsumeStatsRequestHeader,
    GroupList,
    SubscriptionGroupWrapper,
)
from pocketmq.remoting.protocol.namesrv import ClusterInfo
from pocketmq.remoting.protocol.pull import QueryMessageRequestHeader, ViewMessageRequestHeader
from pocketmq.remoting.protocol.relay import ConsumerRunningInfo, GetConsumerRunningInfoRequestHeader
from pocketmq.remoting.protocol.spec import Header
from pocketmq.remoting.protocol.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    TopicConfigBody,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRequestHeader,
    TopicStatsTable,
)
from pocketmq.remoting.security.client_security import TLSArgument
from pocketmq.remoting.security.credentials import Credentials

TOPIC_QUEUE_NUMS = 8
"""Read and write queues of a created topic (mqadmin updateTopic)."""
QUERY_MESSAGES_MAX = 64
END_OF_TIME_MS = (1 << 63) - 1
ROUTE_POLL_MS = 20

_T = TypeVar("_T")
_K = TypeVar("_K")


class NotFound(ClientError):
    """There is no such topic, group, broker or message."""

    default_cause = Cause.BAD_REQUEST


@dataclass(slots=True, frozen=True)
class QueueStatus:
    """The contents of a queue: offsets count messages, ``last_update_ms`` is the newest message's store time or 0."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_update_ms: int

    @property
    def count(self) -> int:
        """How many messages the queue has."""
        return self.max_offset - self.min_offset


@dataclass(slots=True, frozen=True)
class TopicDescription:
    """A topic: its route and its queues."""

    topic: str
    route: TopicRoute
    queues: list[QueueStatus]
    perms: dict[str, int]

    @property
    def count(self) -> int:
        """How many messages the topic has."""
        return sum(queue.count for queue in self.queues)


@dataclass(slots=True, frozen=True)
class QueueProgress:
    """A group's progress in a queue; ``last_consumed_ms`` is the store time of the last message it committed, or 0.

    ``is_committed`` False: it has committed nothing in this topic yet, and ``lag`` counts from offset 0.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_consumed_ms: int
    is_committed: bool = True

    @property
    def lag(self) -> int:
        """How many messages the group has not committed yet."""
        return max(self.broker_offset - self.consumer_offset, 0)


@dataclass(slots=True, frozen=True)
class GroupDescription:
    """A consumer group: its members and its progress."""

    group: str
    members: list[Connection]
    consume_type: str
    message_model: str
    subscriptions: dict[str, str]
    queues: list[QueueProgress]

    @property
    def lag(self) -> int:
        """How many messages the group has not committed yet, over all queues."""
        return sum(queue.lag for queue in self.queues)


class Admin(Lifecycle):
    """Queries and changes a cluster. ``async with Admin(namesrv="127.0.0.1:9876") as admin: await admin.topics()``

    Raises ``NoNameServer``, connection errors, ``BrokerAnswerError`` for what a server refuses, ``NotFound``.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] = "",
        *,
        credentials: Credentials | None = None,
        tls: TLSArgument = None,
        instance: ClientInstance | None = None,
    ) -> None:
        self.instance = instance_for(instance, namesrv, credentials, tls)
        self._running = False

    async def start(self) -> None:
        """Start the client."""
        if not self._running:
            await self.instance.start()
            self._running = True

    async def stop(self) -> None:
        """Close."""
        if self._running:
            self._running = False
            await self.instance.stop()

    # -- cluster -----------------------------------------------------------------------------------------------

    async def cluster_info(self) -> ClusterInfo:
        """Return the clusters, their brokers and addresses."""
        response = await self._name_server(RequestCode.GET_BROKER_CLUSTER_INFO, None, "cluster information refused")
        return self.instance.name_servers.cluster_info(response)

    async def broker_runtime(self, address: str) -> dict[str, str]:
        """Return a broker's runtime information: counters and sizes by RocketMQ's names."""
        body = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, None, "runtime information refused")
        return decode_body(body, KVTable).table

    async def broker_settings(self, address: str) -> dict[str, str]:
        """Return a broker's settings by RocketMQ's names, as it sends them (GET_BROKER_CONFIG)."""
        body = await self._ask(address, RequestCode.GET_BROKER_CONFIG, None, "settings refused")
        pairs = (line.partition("=") for line in bytes(body).decode("utf-8", "replace").splitlines())
        return {name.strip(): value.strip() for name, equals, value in pairs if equals and not name.startswith("#")}

    async def change_broker_settings(self, address: str, settings: Mapping[str, str]) -> None:
        """Change settings of a running broker, all or none, by our names or RocketMQ's. They hold at once, and over
        restarts while the configuration of the broker stays as it is. Raises ``BrokerAnswerError`` with the broker's
        reason, for a PocketMQ broker also where a setting is read at its start only."""
        body = write_properties(settings).encode()
        response = await self._connection_request(address, RequestCode.UPDATE_BROKER_CONFIG, None, body)
        check_answer(response, "settings not changed", address)

    async def masters(self, *, cluster: str = "", broker: str = "") -> dict[str, str]:
        """Return broker name → master address of all brokers, of one cluster, or of one broker. Raises ``NotFound``."""
        info = await self.cluster_info()
        names = set(info.broker_addr_table)
        if cluster:
            if cluster not in info.cluster_addr_table:
                raise NotFound(
                    "no such cluster", why=cluster, hint="known: " + ", ".join(sorted(info.cluster_addr_table))
                )
            names &= set(info.cluster_addr_table[cluster])
        if broker:
            if broker not in names:
                raise NotFound("no such broker", why=broker, hint="known: " + ", ".join(sorted(names)))
            names = {broker}
        found = {name: info.broker_addr_table[name].broker_addrs.get("0", "") for name in sorted(names)}
        found = {name: address for name, address in found.items() if address}
        if not found:
            raise NotFound("no broker", why="no master is registered at the name server", hint="start a broker")
        return found

    # -- topics ------------------------------------------------------------------------------------------------

    async def topics(self) -> list[str]:
        """Return every topic that the name server knows, system topics included."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        return sorted(decode_body(await self._name_server(code, None, "topic list refused"), TopicList).topic_list)

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = TOPIC_QUEUE_NUMS,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int = 6,
        topic_filter_type: str = "SINGLE_TAG",
        topic_sys_flag: int = 0,
        order: bool = False,
        cluster: str = "",
        broker: str = "",
    ) -> TopicRoute:
        """Create or change a topic on all brokers, or those of a cluster, or one; return once its route is known.

        As RocketMQ's request does it: a topic of that name gets all of these settings, whatever it had
        (see ``topic_settings``). Messages in removed queues are no longer read.
        """
        check_topic_name(topic)
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues if read_queues is None else read_queues,
            write_queue_nums=queues if write_queues is None else write_queues,
            perm=perm,
            topic_filter_type=topic_filter_type,
            topic_sys_flag=topic_sys_flag,
            order=order,
        )
        masters = await self.masters(cluster=cluster, broker=broker)
        what = f"topic {topic} not created"
        await self._each(masters, lambda address: self._ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header, what))
        deadline_ns = self.instance.clock.monotonic_ns() + self._timeout_ms * 1_000_000
        while True:  # brokers register a new topic with the name servers after they have answered
            try:
                route = await self.instance.refresh(topic)
                if set(masters) <= set(route.brokers) and _matches(route, masters, header):
                    return route
                why = "the route does not show the change yet"
            except PocketMQError as error:
                why = str(error)
            if self.instance.clock.monotonic_ns() >= deadline_ns:
                raise NotFound(f"route of {topic} not seen", why=why, hint="check the brokers' name servers")
            await asyncio.sleep(ROUTE_POLL_MS / 1000)

    async def topic_settings(self, topic: str, addresses: Mapping[str, str]) -> dict[str, TopicConfigBody]:
        """Return broker name → the settings of a topic, for those of these brokers (name → address) that have it."""
        check_topic_name(topic)
        found = await self._each(addresses, lambda address: self._topic_settings_at(address, topic))
        return {name: config for name, config in found.items() if config is not None}

    async def _topic_settings_at(self, address: str, topic: str) -> TopicConfigBody | None:
        what = f"settings of {topic} refused"
        response = await self._connection_request(address, RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic))
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # RocketMQ 4.9
            body = await self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG, None, what)
            return decode_body(body, TopicConfigSerializeWrapper).topic_config_table.get(topic)
        check_answer(response, what, address, ResponseCode.TOPIC_NOT_EXIST)
        return decode_body(response.body, TopicConfigBody) if response.code == ResponseCode.SUCCESS else None

    async def topic_queues(self, topic: str, address: str) -> list[QueueStatus]:
        """Return the status of a topic's queues on one broker."""
        body = await self._ask(
            address, RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(topic), f"state of {topic} refused"
        )
        return [
            QueueStatus(
                MessageQueue(queue.topic, queue.broker_name, queue.queue_id),
                offset.min_offset,
                offset.max_offset,
                offset.last_update_timestamp,
            )
            for queue, offset in decode_body(body, TopicStatsTable).offset_table.items()
        ]

    async def describe_topic(self, topic: str) -> TopicDescription:
        """Return route, permissions and queues of a topic. Raises ``NoRoute``."""
        check_topic_name(topic)
        data = await self.instance.name_servers.route(topic, timeout_ms=self._timeout_ms)
        route = route_from_data(topic, data)
        addresses = {name: broker.readable() for name, broker in route.brokers.items() if broker.readable()}
        found = await self._each(addresses, lambda address: self.topic_queues(topic, address))
        queues = [queue for each in found.values() for queue in each]
        perms = {each.broker_name: each.perm for each in data.queue_datas}
        return TopicDescription(topic, route, sorted(queues, key=lambda each: each.queue), perms)

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic from the brokers that have it, then from every name server. Raises ``NoRoute`` if unknown."""
        check_topic_name(topic)
        route = route_from_data(topic, await self.instance.name_servers.route(topic, timeout_ms=self._timeout_ms))
        await self._delete_topic(
            topic, {name: broker.master for name, broker in route.brokers.items() if broker.master}
        )

    async def _delete_topic(self, topic: str, addresses: Mapping[str, str]) -> None:
        header = DeleteTopicRequestHeader(topic)
        what = f"topic {topic} not deleted"
        await self._each(
            addresses, lambda address: self._ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, header, what)
        )
        servers = {address: address for address in self.instance.name_servers.addresses}
        await self._each(servers, lambda address: self._ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header, what))
        self.instance.routes.forget(topic)

    # -- groups ------------------------------------------------------------------------------------------------

    async def groups(self) -> list[str]:
        """Return every consumer group known to any broker."""
        found: set[str] = set()

        async def ask(address: str) -> None:
            response = await self._connection_request(address, RequestCode.GROUP_LIST, None)
            if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # RocketMQ
                body = await self._ask(
                    address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, None, "group list refused"
                )
                found.update(decode_body(body, SubscriptionGroupWrapper).subscription_group_table)
                return
            check_answer(response, "group list refused", address)
            found.update(decode_body(response.body, GroupList).group_list)

        await self._each(await self.masters(), ask)
        return sorted(found)

    async def describe_group(self, group: str, *, topic: str = "") -> GroupDescription:
        """Return members and progress of a group, over all topics or one. Raises ``NotFound`` if no broker knows it.

        A topic to which it subscribes and in which it has committed nothing counts from offset 0.
        """
        check_group_name(group)
        masters = await self.masters()
        members: dict[str, Connection] = {}
        subscriptions: dict[str, str] = {}
        kind, model = "", ""
        stats_header = ConsumeStatsRequestHeader(group, topic)
        header = ConsumerGroupRequestHeader(group)
        queues: list[QueueProgress] = []
        for address in masters.values():
            response = await self._connection_request(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
            check_answer(response, f"members of {group} refused", address, ResponseCode.CONSUMER_NOT_ONLINE)
            if response.code == ResponseCode.SUCCESS:
                answer = decode_body(response.body, ConsumerConnection)
                members.update({member.client_id: member for member in answer.connection_set})
                subscriptions.update({name: each.sub_string or "*" for name, each in answer.subscription_table.items()})
                kind, model = answer.consume_type or "", answer.message_model or ""
            what = f"progress of {group} refused"
            here = await self._progress(address, stats_header, what)
            if not topic:  # a broker lists topics with a committed offset: not one that is stuck on its first message
                for name in sorted({*subscriptions} - {each.queue.topic for each in here}):
                    first = await self._progress(address, ConsumeStatsRequestHeader(group, name), what)
                    here += [replace(each, is_committed=False) for each in first]
            queues += here
        if not members and not queues and group not in await self.groups():
            raise NotFound(
                "no such group", why=group, hint="a group is known once a consumer has connected or committed"
            )
        queues.sort(key=lambda each: each.queue)
        return GroupDescription(group, list(members.values()), kind, model, subscriptions, queues)

    async def _progress(self, address: str, header: ConsumeStatsRequestHeader, what: str) -> list[QueueProgress]:
        stats = decode_body(await self._ask(address, RequestCode.GET_CONSUME_STATS, header, what), ConsumeStats)
        return [
            QueueProgress(
                MessageQueue(queue.topic, queue.broker_name, queue.queue_id),
                offset.broker_offset,
                offset.consumer_offset,
                offset.last_timestamp,
            )
            for queue, offset in stats.offset_table.items()
        ]

    async def seek_group(
        self, group: str, topic: str, to: StartPosition, *, force: bool = False
    ) -> dict[MessageQueue, int]:
        """Set a group's offsets of a topic: ``"earliest"``, ``"latest"``, a datetime or ms since 1970. Return them.

        Raises ``GroupOnline`` while consumers are connected, since they go on from their own positions and commit
        those; ``force`` sets the offsets anyway, and makes the consumers continue there.
        """
        moves = await plan_moves(self, group, topic, to)
        await move_group(self, group, moves, to, force=force)
        return {each.queue: each.after for each in moves}

    async def delete_group(self, group: str, *, keep_offsets: bool = False, force: bool = False) -> None:
        """Delete a group, its offsets and its retry topic from every master. Dead letters stay, and with
        ``keep_offsets`` offsets and retries. Raises ``GroupOnline`` while consumers are connected.
        """
        masters = await delete_group(self, group, keep_offsets=keep_offsets, force=force)
        if not keep_offsets:  # RocketMQ's mqadmin deletes it, too; the broker does not
            await self._delete_topic(retry_topic(group), masters)

    # -- messages ----------------------------------------------------------------------------------------------

    async def view_message(self, msg_id: str, *, topic: str = "") -> ReceivedMessage:
        """Return the message with this offset message id, or with this unique id (needs ``topic``).

        Raises ``NotFound``, and ``MessageIllegal`` for something that is no id.
        """
        if topic:
            found = await self.query_messages(topic, msg_id, unique=True)
            if found:
                return found[0]
        host, offset = parse_offset_msg_id(msg_id)
        try:
            address = host_text(host)
            known = {address for each in (await self.masters()).values() for address in (each,)}
            if address not in known:
                raise NotFound(
                    "no such message", why=f"{address} is no broker of this cluster", hint="pass the topic, too"
                )
            body = await self._ask(
                address, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset), "not found"
            )
        except (BrokerAnswerError, MessageIllegal) as error:
            raise NotFound(
                "no such message", why=str(error), hint="the id may be a unique id: pass the topic"
            ) from error
        names = {address: name for name, address in (await self.masters()).items()}
        return received_message(bytes(body), names.get(address, ""), check_crc=True)

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = 32,
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME_MS,
        unique: bool = False,
    ) -> list[ReceivedMessage]:
        """Return messages of a topic with this key (or unique id), oldest first; times are store times in ms."""
        check_topic_name(topic)
        route = await self.instance.route(topic, timeout_ms=self._timeout_ms)
        header = QueryMessageRequestHeader(
            topic, key, min(max_messages, QUERY_MESSAGES_MAX), begin_ms, end_ms, unique_key_query=unique
        )
        found: list[ReceivedMessage] = []
        for name, broker in route.brokers.items():
            address = broker.readable()
            response = await self._connection_request(address, RequestCode.QUERY_MESSAGE, header)
            check_answer(response, f"query of {topic} refused", address, ResponseCode.QUERY_NOT_FOUND)
            if response.code == ResponseCode.SUCCESS:
                from pocketmq.common.record_columns import received_messages  # NumPy: not at import

                found += received_messages(response.body, None, name)
        # the broker's index holds hashes: other keys with the same hash come along
        found = [each for each in found if (each.msg_id == key if unique else key in each.keys)]
        return sorted(found, key=lambda each: each.store_timestamp)[:max_messages]

    async def consumer_running_info(self, group: str, client_id: str, *, jstack: bool = False) -> ConsumerRunningInfo:
        """Return the state of a running consumer, through a broker. Raises ``BrokerAnswerError`` if no broker knows
        it."""
        header = GetConsumerRunningInfoRequestHeader(group, client_id, jstack_enable=jstack)
        failure: PocketMQError | None = None
        for address in (await self.masters()).values():
            try:
                body = await self._ask(
                    address, RequestCode.GET_CONSUMER_RUNNING_INFO, header, f"running info of {client_id} refused"
                )
            except PocketMQError as error:
                failure = error
            else:
                return ConsumerRunningInfo.decode(bytes(body))
        raise failure or NotFound(f"no broker for group {group}")

    # -- inside ------------------------------------------------------------------------------------------------

    @property
    def _timeout_ms(self) -> int:
        return self.instance.options.api_timeout_ms

    def _check_running(self) -> None:
        if not self._running:
            raise NotStarted("admin client is not running", hint='use "async with Admin(...)"')

    async def _name_server(self, code: int, header: Header | None, what: str) -> Any:
        self._check_running()
        servers = self.instance.name_servers
        response = await servers.request(code, header, timeout_ms=self._timeout_ms)
        return check_answer(response, what, servers.current).body

    async def _connection_request(self, address: str, code: int, header: Header | None, body: bytes = b"") -> Any:
        self._check_running()
        connection: BrokerConnection = await self.instance.connection_to(address, address, timeout_ms=self._timeout_ms)
        return await connection.channel.request(code, header, body, timeout_ms=self._timeout_ms)

    async def _ask(self, address: str, code: int, header: Header | None, what: str) -> Any:
        if address in self.instance.name_servers.addresses:
            self._check_running()
            response = await self.instance.name_servers.request_at(address, code, header, timeout_ms=self._timeout_ms)
        else:
            response = await self._connection_request(address, code, header)
        return check_answer(response, what, address).body

    @staticmethod
    async def _each(addresses: Mapping[_K, str], ask: Callable[[str], Awaitable[_T]]) -> dict[_K, _T]:
        """Send to all at once; raise the first error after all have ended."""
        results = await asyncio.gather(*map(ask, addresses.values()), return_exceptions=True)
        answers: dict[_K, _T] = {}
        for name, result in zip(addresses, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            answers[name] = result
        return answers


def _matches(route: TopicRoute, masters: Iterable[str], header: CreateTopicRequestHeader) -> bool:
    """Return whether a route shows the requested queues on each of these brokers."""
    for name in masters:
        writes = sum(queue.broker_name == name for queue in route.write_queues)
        reads = sum(queue.broker_name == name for queue in route.read_queues)
        if (header.perm & 2 and writes != header.write_queue_nums) or (
            header.perm & 4 and reads != header.read_queue_nums
        ):
            return False
    return True
