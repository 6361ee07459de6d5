"""The parts of one row of the protocol, which describes a request code.

A header is an array-like struct: its field order is the msgpack wire format (append new fields at the end, with a
default). Its names on RocketMQ's wire (string maps of the JSON and binary codecs) are the field names in camelCase
unless ``wire_names`` says otherwise. A field without a default is required.
"""

import enum
from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import Access

Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A Java int."""
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A Java long."""


class Header(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The base of all headers."""

    wire_names: ClassVar[Mapping[str, str]] = {}


class Raw(enum.Enum):
    """A body that is not a struct's JSON object."""

    MESSAGE = "message body"
    BATCH = "messages of a batch"
    """As RocketMQ's ``MessageDecoder.encodeMessages`` lays them out."""
    RECORDS = "records"
    SIZED_RECORDS = "sizes, records"
    PROPERTIES = "properties text"
    STATS_LIST = "ConsumeStatsList"


class Pool(enum.Enum):
    """The server of a request: a pair of queue and threads of the broker, by RocketMQ's name, or another place."""

    SEND = "SendMessageThread"
    PULL = "PullMessageThread"
    FILTER = "PullFilterThread"
    """Ours: gets the pulls with SQL92 filters from the pull threads."""
    POP = "PopMessageThread"
    """Ours: RocketMQ's pull threads serve pops as well."""
    ACK = "AckMessageThread"
    HEARTBEAT = "HeartbeatThread"
    CLIENT_MANAGE = "ClientManageThread"
    CONSUMER_MANAGE = "ConsumerManageThread"
    QUERY = "QueryMessageThread"
    REPLY = "ProcessReplyMessageThread"
    END_TRANSACTION = "EndTransactionThread"
    STAGED = "NamedTransactionThread"
    """A metrics label, so it keeps its first name."""
    LOCK = "LockManageThread"
    """Ours: RocketMQ's default pair serves queue locks, and a look at the log for an administrator holds them up."""
    STATUS = "BrokerStatusThread"
    """Ours: what monitors ask for, all of it in memory. Behind requests that read the log it would be missing just when
    the disk stands still."""
    ADMIN = "AdminBrokerThread"
    CONNECTION = "connection"
    """The server's connection answers it, at a broker and at a name server."""
    NAME_SERVER = "name server"
    CLIENT = "client"
    """A broker sends it."""
    NOBODY = "refused"
    """RocketMQ has the code; PocketMQ refuses it."""

    @property
    def is_of_broker(self) -> bool:
        """Whether a pair of the broker serves the request."""
        return self.value.endswith("Thread")


class Spec(msgspec.Struct, frozen=True):
    """One row of the protocol. ``request`` and ``response`` are typed headers, ``body`` and ``answer`` the bodies of
    request and response; None: it has none."""

    code: RequestCode
    pool: Pool
    access: Access
    request: type[Header] | None = None
    response: type[Header] | None = None
    body: type[msgspec.Struct] | Raw | None = None
    answer: type[msgspec.Struct] | Raw | None = None
    also_namesrv: bool = False
    """The name server serves the code as well."""
    also_client: bool = False
    """The broker passes it on to a client, under the same code."""
