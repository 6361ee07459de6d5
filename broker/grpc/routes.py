"""QueryRoute and QueryAssignment: where the queues of a topic are.

This broker's queues are answered with the endpoints that the client used, so that it reaches them however it came: from
a container, through NAT, under another name. Those of other brokers have the addresses that their name server knows,
with this broker's gRPC port; a broker on the same host has another port, which nobody knows, and is left out.

Lives here: ``Routes``.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.grpc.callers import Callers
from pocketmq.broker.grpc.names import group_of, topic_of
from pocketmq.broker.grpc.statuses import OK, CallRefused, status_of_error
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.addresses import parse_address
from pocketmq.common.clock import Clock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.topics import Perm, TopicConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.grpc.call import Call
from pocketmq.remoting.grpc.codes import AddressScheme, Code, MessageType, Permission
from pocketmq.remoting.grpc.messages import (
    Address,
    Assignment,
    Broker,
    Endpoints,
    MessageQueue,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
    Resource,
)
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.namesrv import GetRouteInfoRequestHeader, QueueData, TopicRouteData
from pocketmq.remoting.protocol.pull import QueryAssignmentRequest as AssignmentRequest

ROUTE_AGE_NS: Final = 5_000_000_000
"""How long the route of a topic is kept; clients ask every 30 s."""
TOPICS_MAX: Final = 1_000
ADDRESSES_MAX: Final = 64
"""Addresses of a client's endpoints that are answered."""
QUEUES_MAX: Final = 16_384
MASTER: Final = 0
ANY_QUEUE: Final = -1
TYPES: Final = {
    "NORMAL": [int(MessageType.NORMAL)],
    "FIFO": [int(MessageType.FIFO)],
    "DELAY": [int(MessageType.DELAY)],
    "TRANSACTION": [int(MessageType.TRANSACTION)],
}
ALL_TYPES: Final = [
    int(each) for each in (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
]
"""Of a topic that says nothing, or MIXED."""


@dataclass(slots=True, eq=False)
class Routes:
    """Serves two methods. Loop thread only."""

    config: BrokerConfig
    callers: Callers
    topics: TopicTable
    groups: SubscriptionGroups
    clock: Clock
    type_of: Callable[[TopicConfig], str]
    host: str
    """Under which other brokers' clients find this one."""
    port: Callable[[], int]
    """Returns this broker's gRPC port."""
    route: Callable[[str], Awaitable[TopicRouteData | None]] | None = None
    """Asks the name servers for a topic; None before the broker is registered."""
    kept: dict[str, tuple[int, TopicRouteData | None]] = field(default_factory=dict)
    """Topic → (until when it counts, monotonic ns; its route at other brokers)."""

    async def query_route(self, call: Call, request: QueryRouteRequest) -> QueryRouteResponse:
        """Return the queues of a topic."""
        try:
            caller = self.callers.of(call, RequestCode.GET_ROUTEINFO_BY_TOPIC)
            topic = topic_of(request.topic)
            self.callers.check(caller, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic))
            queues = await self._queues(topic, request.topic, self._endpoints(request.endpoints, call))
        except CallRefused as refused:
            return QueryRouteResponse(status=refused.status)
        except PocketMQError as error:
            return QueryRouteResponse(status=status_of_error(error))
        return QueryRouteResponse(status=OK, message_queues=queues)

    async def query_assignment(self, call: Call, request: QueryAssignmentRequest) -> QueryAssignmentResponse:
        """Return the queues that a member of a group reads: in order every one, else one that stands for all of a
        broker."""
        try:
            caller = self.callers.of(call, RequestCode.QUERY_ASSIGNMENT)
            topic, group = topic_of(request.topic), group_of(request.group)
            asked = AssignmentRequest(topic=topic, consumer_group=group, client_id=caller.client.client_id)
            self.callers.check(caller, RequestCode.QUERY_ASSIGNMENT, body=encode_body(asked))
            queues = await self._queues(topic, request.topic, self._endpoints(request.endpoints, call))
            readable = [
                queue
                for queue in queues
                if queue.permission in (Permission.READ, Permission.READ_WRITE)
                and (queue.broker is None or queue.broker.id == MASTER)
            ]
            if not readable:
                raise CallRefused(Code.FORBIDDEN, "no readable queue")
            config = self.groups.get(group)
            if config is None or not config.consume_message_orderly:
                of_brokers = {queue.broker.name: queue for queue in readable if queue.broker is not None}
                readable = [
                    MessageQueue(
                        topic=queue.topic,
                        id=ANY_QUEUE,
                        permission=Permission.READ,
                        broker=queue.broker,
                        accept_message_types=queue.accept_message_types,
                    )
                    for queue in of_brokers.values()
                ]
        except CallRefused as refused:
            return QueryAssignmentResponse(status=refused.status)
        except PocketMQError as error:
            return QueryAssignmentResponse(status=status_of_error(error))
        assignments = [Assignment(message_queue=queue) for queue in readable]
        return QueryAssignmentResponse(status=OK, assignments=assignments)

    def _endpoints(self, given: Endpoints | None, call: Call) -> Endpoints:
        """Return where the client has reached this broker."""
        if given is not None and given.addresses:
            if len(given.addresses) > ADDRESSES_MAX:
                raise CallRefused(
                    Code.ILLEGAL_ACCESS_POINT, f"{len(given.addresses)} addresses: {ADDRESSES_MAX} at most"
                )
            return given
        host, port = parse_address(call.connection.local)
        return endpoints_of(host, port)

    async def _queues(self, topic: str, named: Resource | None, here: Endpoints) -> list[MessageQueue]:
        config = self.topics.get(topic)
        queues: list[MessageQueue] = []
        name, broker_id = self.config.broker_name, self.config.broker_id
        if config is not None:
            queues += self._of_broker(
                QueueData(
                    name, config.read_queue_nums, config.write_queue_nums, config.perm & self.config.broker_permission
                ),
                Broker(name=name, id=broker_id, endpoints=here),
                named,
                TYPES.get(self.type_of(config), ALL_TYPES),
            )
        route = await self._route(topic)
        if route is not None:
            addresses = {data.broker_name: data.broker_addrs for data in route.broker_datas}
            types = ALL_TYPES if config is None else TYPES.get(self.type_of(config), ALL_TYPES)
            for data in route.queue_datas:
                for id_text, address in addresses.get(data.broker_name, {}).items():
                    if (data.broker_name, id_text) == (name, str(broker_id)) or not id_text.isdecimal():
                        continue
                    host, _ = parse_address(address)
                    if host == self.host:  # its gRPC port is another one, and nobody knows which
                        continue
                    broker = Broker(name=data.broker_name, id=int(id_text), endpoints=endpoints_of(host, self.port()))
                    queues += self._of_broker(data, broker, named, types)
        if not queues:
            raise CallRefused(
                Code.TOPIC_NOT_FOUND,
                f"No topic route info in name server for the topic: {topic}. "
                f"Create it: pocketmq topic create {topic}, or mqadmin updateTopic",
            )
        return queues[:QUEUES_MAX]

    @staticmethod
    def _of_broker(data: QueueData, broker: Broker, named: Resource | None, types: list[int]) -> list[MessageQueue]:
        reads = data.read_queue_nums if data.perm & Perm.READ else 0
        writes = data.write_queue_nums if data.perm & Perm.WRITE else 0
        queues = []
        for queue_id in range(min(max(reads, writes), QUEUES_MAX)):
            permission = Permission.READ_WRITE
            if queue_id >= writes:
                permission = Permission.READ
            elif queue_id >= reads:
                permission = Permission.WRITE
            queues.append(
                MessageQueue(topic=named, id=queue_id, permission=permission, broker=broker, accept_message_types=types)
            )
        return queues

    async def _route(self, topic: str) -> TopicRouteData | None:
        """Return what the name servers know of a topic; None: nothing, or they do not answer."""
        now_ns = self.clock.monotonic_ns()
        known = self.kept.get(topic)
        if known is not None and now_ns < known[0]:
            return known[1]
        if self.route is None or not self.config.name_servers():
            return None
        try:
            found = await self.route(topic)
        except (TimeoutError, PocketMQError):
            return None if known is None else known[1]
        if len(self.kept) >= TOPICS_MAX:
            self.kept.clear()
        self.kept[topic] = now_ns + ROUTE_AGE_NS, found
        return found


def endpoints_of(host: str, port: int) -> Endpoints:
    """Return one address as endpoints. A name is announced as IPv4, as RocketMQ's proxy does: clients take one address
    alone of a DOMAIN_NAME, and resolve both."""
    scheme = AddressScheme.IPV6 if ":" in host else AddressScheme.IPV4
    return Endpoints(scheme=scheme, addresses=[Address(host=host, port=port)])
