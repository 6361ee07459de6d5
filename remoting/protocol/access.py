"""Which permission a request needs: the model of RocketMQ 5's access control (ACL 2.0).

A request has needs, each of which must be granted. A need is a resource and some actions, any one of which is enough:

    needs(topic("topic", SUB | GET), group("consumer_group", SUB))

The first argument says where to find the name of the resource: a field of the request header, or a ``Place``. A field
may hold several names (a list, a text with commas, sections whose first item is the topic): each of them counts. An
empty one counts for nothing. A retry topic (``%RETRY%group``) stands for its group: the same actions on the group, with
Sub in the place of Pub.

Source: RocketMQ 5.3.3 ``RocketMQAction`` and ``RocketMQResource`` at the header classes, and
``DefaultAuthorizationContextBuilder``, which overrules them. ``pocketmq.auth`` enforces it where a server knows users.
"""

import enum
from typing import Final

import msgspec


class Resource(enum.Enum):
    """The kind of resource that a permission covers."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"


class Action(enum.Flag):
    """An action on a resource, by RocketMQ's names."""

    PUB = 1
    SUB = 2
    CREATE = 4
    UPDATE = 8
    DELETE = 16
    GET = 32
    LIST = 64


PUB: Final = Action.PUB
SUB: Final = Action.SUB
CREATE: Final = Action.CREATE
UPDATE: Final = Action.UPDATE
DELETE: Final = Action.DELETE
GET: Final = Action.GET
LIST: Final = Action.LIST


class Place(enum.Enum):
    """The place of a resource's name, if that is not a field of the header."""

    BODY = "of the body"
    STORED = "of the stored messages"
    """The topics of the messages that the request refers to: by offset, half messages, staged chunks."""
    ALL = "all"
    """No name: the request covers all resources of the kind."""
    OWN = "its own"
    """The cluster of the server that gets the request."""


class Need(msgspec.Struct, frozen=True):
    """Any one of ``actions`` on each resource that ``name`` leads to."""

    resource: Resource
    actions: Action
    name: str | Place

    def __str__(self) -> str:
        actions = " or ".join(action.name.capitalize() for action in Action if action in self.actions and action.name)
        if self.name is Place.OWN:
            return f"{self.resource.value} {actions}"
        where = self.name.value if isinstance(self.name, Place) else f"`{self.name}`"
        return f"{self.resource.value} {actions} ({where})"


class Access(msgspec.Struct, frozen=True):
    """What one request code needs."""

    needs: tuple[Need, ...] = ()
    by: str = ""
    """The allowed sender, if no user's permission is needed."""

    def __str__(self) -> str:
        return self.by or ", ".join(map(str, self.needs))


ANYONE: Final = Access(by="anyone")
"""Any client, also one that has not yet authenticated."""
ANY_USER: Final = Access(by="any user")
"""Any user that has authenticated."""
FROM_BROKER: Final = Access(by="the broker")
"""A client accepts it only from a broker that it has connected to."""


def topic(name: str | Place, actions: Action) -> Need:
    """Return a need on topics."""
    return Need(Resource.TOPIC, actions, name)


def group(name: str | Place, actions: Action) -> Need:
    """Return a need on consumer groups."""
    return Need(Resource.GROUP, actions, name)


def cluster(actions: Action, name: str | Place = Place.OWN) -> Need:
    """Return a need on a cluster."""
    return Need(Resource.CLUSTER, actions, name)


def needs(*each: Need) -> Access:
    """Return the access of a user that has all of ``each``."""
    return Access(each)


PUB_TOPIC: Final = needs(topic("topic", PUB))
PUB_SECTIONS: Final = needs(topic("sections", PUB))
PUB_STORED: Final = needs(topic(Place.STORED, PUB))
PULL: Final = needs(topic("topic", SUB), group("consumer_group", SUB))
SUB_BODY: Final = needs(group(Place.BODY, SUB), topic(Place.BODY, SUB))
GET_TOPIC: Final = needs(topic("topic", GET))
GET_GROUP: Final = needs(group("group", GET))
GET_CONSUMER_GROUP: Final = needs(group("consumer_group", GET))
GET_TOPIC_AND_GROUP: Final = needs(topic("topic", GET), group("group", GET))
LIST_TOPICS: Final = needs(topic(Place.ALL, LIST))
LIST_GROUPS: Final = needs(group(Place.ALL, LIST))
GET_CLUSTER: Final = needs(cluster(GET))
UPDATE_CLUSTER: Final = needs(cluster(UPDATE))
