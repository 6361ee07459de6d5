"""What a request needs: the row of its code, with the names that this request gives.

    for kind, name, actions in needed(request, spec, "DefaultCluster"): ...

Lives here: ``needed``.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from pocketmq.auth.errors import AccessDenied
from pocketmq.common.receipt_handle import first_topic
from pocketmq.common.topics import AUTO_CREATE_TOPIC, RETRY_PREFIX
from pocketmq.remoting.codec import Request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import PUB, SUB, Action, Need, Place, Resource
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.client import CheckClientBody, HeartbeatData
from pocketmq.remoting.protocol.group import SubscriptionGroupConfigBody, SubscriptionGroupListBody
from pocketmq.remoting.protocol.lock import LockBatchRequestBody, OwnLockBatchRequestBody
from pocketmq.remoting.protocol.pop import BatchAckBody
from pocketmq.remoting.protocol.pull import QueryAssignmentRequest
from pocketmq.remoting.protocol.spec import Pool, Raw, Spec
from pocketmq.remoting.protocol.topic import CreateTopicListBody

Needed = tuple[Resource, str, Action]
BODY_BYTES_MAX: Final = 512 * 1024
"""Longest body that is read for its names, by the loop. A heartbeat of 1,000 subscriptions has a third."""
NAMES_MAX: Final = 5_000
"""Topics and groups of one request that are decided, by the loop: more than a heartbeat of that length has, unless its
subscriptions have nothing but names."""
Names = Callable[[Any, Resource], Iterator[str]]


def _of_heartbeat(body: HeartbeatData, kind: Resource) -> Iterator[str]:
    for consumer in body.consumer_data_set:
        if kind is Resource.GROUP:
            yield consumer.group_name
        else:
            for subscription in consumer.subscription_data_set:
                yield subscription.topic


def _of_check(body: CheckClientBody, kind: Resource) -> Iterator[str]:
    yield body.group if kind is Resource.GROUP else body.subscription_data.topic


def _of_assignment(body: QueryAssignmentRequest, kind: Resource) -> Iterator[str]:
    yield body.consumer_group if kind is Resource.GROUP else body.topic


def _of_acks(body: BatchAckBody, kind: Resource) -> Iterator[str]:
    for ack in body.acks:
        yield ack.consumer_group if kind is Resource.GROUP else ack.topic


def _of_locks(body: LockBatchRequestBody, kind: Resource) -> Iterator[str]:
    if kind is Resource.GROUP:
        yield body.consumer_group
    else:
        for queue in body.mq_set:
            yield queue.topic


def _of_topics(body: CreateTopicListBody, kind: Resource) -> Iterator[str]:
    for topic in body.topic_config_list:
        yield topic.topic_name


def _of_group(body: SubscriptionGroupConfigBody, kind: Resource) -> Iterator[str]:
    yield body.group_name


def _of_groups(body: SubscriptionGroupListBody, kind: Resource) -> Iterator[str]:
    for config in body.group_config_list:
        yield config.group_name


NAMES_IN: Final[dict[type, Names]] = {
    HeartbeatData: _of_heartbeat,
    CheckClientBody: _of_check,
    QueryAssignmentRequest: _of_assignment,
    BatchAckBody: _of_acks,
    OwnLockBatchRequestBody: _of_locks,
    LockBatchRequestBody: _of_locks,
    CreateTopicListBody: _of_topics,
    SubscriptionGroupConfigBody: _of_group,
    SubscriptionGroupListBody: _of_groups,
}
"""Body → the names in it."""
OPTIONAL: Final = frozenset(
    {
        (RequestCode.UNREGISTER_CLIENT, "consumer_group"),
        (RequestCode.GET_CONSUME_STATS, "topic"),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, "topic"),
        (RequestCode.QUERY_CONSUME_QUEUE, "consumer_group"),
    }
)
"""Fields that clients leave empty: a producer's end, which concerns its own connection; the offsets of a group in all
topics; a stored message, whose topic its handler checks; a queue, whatever its groups."""
ALL_NAMES: Final = "*"
"""What a request for all resources of a kind names: only entries for all of the kind fit it."""


def needed(request: Request, spec: Spec, cluster: str) -> Iterator[Needed]:
    """Yield each resource that ``request`` names, with the actions of which any one is enough.

    An empty name stands for all of the kind: what a handler makes of it nobody can tell here. RocketMQ lets it count
    for nothing, so that a registration without a cluster needs no right at all. Only a field that may be missing
    (``OPTIONAL``) counts for nothing, where the request names something else or nothing of others.

    Left out: those that only stored messages name (``Place.STORED``), which their processor knows; and the route of
    ``TBW102``, which says which brokers make a topic at its first message. ``cluster``: the server's.
    Raise ``AccessDenied`` or ``BodyIllegal`` where the names cannot be read.
    """
    body: Any = None
    count = 0
    for need in spec.access.needs:
        if need.name is Place.STORED:
            continue
        if need.name is Place.OWN:
            yield need.resource, cluster, need.actions
        elif need.name is Place.ALL:
            yield need.resource, ALL_NAMES, need.actions
        else:
            if need.name is Place.BODY and body is None:
                body = _body(request, spec)
            for name in _names(need, request, body):
                count += 1
                if count > NAMES_MAX:
                    raise AccessDenied("request refused", why=f"it names more than {NAMES_MAX} topics and groups")
                if spec.pool is Pool.ACK and need.name == "topic":  # POP's retry topic stands for its topic
                    name = first_topic(name, request.header.consumer_group)  # type: ignore[union-attr]
                if name == AUTO_CREATE_TOPIC and spec.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                    continue
                if name:
                    yield resource_of(need.resource, name, need.actions)
                elif (spec.code, need.name) not in OPTIONAL:
                    yield need.resource, ALL_NAMES, need.actions


def resource_of(kind: Resource, name: str, actions: Action) -> Needed:
    """Return what ``name`` stands for: a retry topic for its group."""
    if kind is Resource.TOPIC and name.startswith(RETRY_PREFIX):
        rest = actions & ~PUB
        return Resource.GROUP, name[len(RETRY_PREFIX) :], rest | SUB if actions & PUB else rest
    return kind, name, actions


def _names(need: Need, request: Request, body: Any) -> Iterator[str]:
    if need.name is Place.BODY:
        yield from NAMES_IN[type(body)](body, need.resource)
        return
    value = getattr(request.header, str(need.name))
    if isinstance(value, str):
        if "," in value:
            yield from (part.strip() for part in value.split(","))
        else:
            yield value
    elif value is not None:  # sections or queues: the topic comes first
        last = None
        for item in value:
            if item[0] != last:
                last = item[0]
                yield item[0]


def _body(request: Request, spec: Spec) -> Any:
    if len(request.body) > BODY_BYTES_MAX:
        raise AccessDenied(
            "request refused", why=f"its body has {len(request.body)} bytes, and at most {BODY_BYTES_MAX} are checked"
        )
    assert isinstance(spec.body, type)
    assert not isinstance(spec.body, Raw)
    return decode_body(request.body, spec.body)
