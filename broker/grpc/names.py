"""Topics and groups of the contract: a namespace and a name, as one name of RocketMQ's (``namespace%name``).

Source: RocketMQ 5.3.3 ``NamespaceUtil``: system topics have no namespace; a retry topic and a dead-letter topic have it
behind their prefix.

Lives here: ``topic_of``, ``group_of``, ``resource_of``.
"""

from typing import Final

from pocketmq.broker.grpc.statuses import CallRefused
from pocketmq.common.topics import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SEND_FORBIDDEN_TOPICS,
    SYSTEM_PREFIX,
    GroupIllegal,
    TopicIllegal,
    check_group_name,
    check_topic_name,
)
from pocketmq.remoting.grpc.codes import Code
from pocketmq.remoting.grpc.messages import Resource

SEPARATOR: Final = "%"


def topic_of(resource: Resource | None) -> str:
    """Return the name of a topic. Raise ``CallRefused`` for one that clients may not name."""
    name = "" if resource is None else _whole(resource)
    try:
        check_topic_name(name)
    except TopicIllegal as error:
        raise CallRefused(Code.ILLEGAL_TOPIC, str(error)) from error
    if name in SEND_FORBIDDEN_TOPICS or name.startswith(SYSTEM_PREFIX):
        raise CallRefused(Code.ILLEGAL_TOPIC, f"the topic {name} is the broker's own")
    return name


def group_of(resource: Resource | None) -> str:
    """Return the name of a group. Raise ``CallRefused``."""
    name = "" if resource is None else _whole(resource)
    try:
        check_group_name(name)
    except GroupIllegal as error:
        raise CallRefused(Code.ILLEGAL_CONSUMER_GROUP, str(error)) from error
    return name


def _whole(resource: Resource) -> str:
    name, namespace = resource.name, resource.resource_namespace
    if not namespace or name.startswith(namespace + SEPARATOR):
        return name
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return f"{prefix}{namespace}{SEPARATOR}{name.removeprefix(prefix)}"
    return f"{namespace}{SEPARATOR}{name}"


def resource_of(name: str, like: Resource | None) -> Resource:
    """Return a topic as a client names it that has named ``like``."""
    namespace = "" if like is None else like.resource_namespace
    if namespace:
        name = name.replace(f"{namespace}{SEPARATOR}", "", 1)
    return Resource(resource_namespace=namespace, name=name)
