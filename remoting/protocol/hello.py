"""HELLO (30001): the features of a PocketMQ server, in the first answer on a connection.

The connection itself answers it, before any table of handlers. RocketMQ answers "not supported", which says enough.

Access, our decision: anyone, because the answer says how a client authenticates.
"""

from typing import Final

import msgspec

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import ANYONE
from pocketmq.remoting.protocol.spec import Pool, Spec


class Announcement(msgspec.Struct, frozen=True):
    """The features that a PocketMQ server announces in its first answer (ext field ``_pmq``, as JSON)."""

    serialize: tuple[int, ...] = (0, 1, 2)
    native: int = 1
    """Version of the native append and pull codes; 0: not served (a name server)."""
    family: int = 4
    """IP family of the host fields in plain records: 4 or 6."""
    frame_bytes_max: int = 16 * 1024 * 1024
    cluster: str = ""
    message_bytes_max: int = 4 * 1024 * 1024
    broker: str = ""
    flush: str = ""
    """What SEND_OK means: ``SYNC_FLUSH`` (on disk), ``ASYNC_FLUSH`` (in the page cache), ``WRITE_BUFFER`` (in a buffer
    of the broker's process); empty if the broker does not say.
    """
    replication: str = ""
    """What SEND_OK means beside ``flush``: ``SYNC_MASTER`` (``in_sync_replicas`` copies have it), ``ASYNC_MASTER``
    (slaves follow later, if there are any), ``SLAVE``; empty if the broker does not say.
    """
    in_sync_replicas: int = 1
    """Copies, the master's included, that have a message before SEND_OK."""
    trace_on: bool = True
    """Whether producers that can are to trace their sends; RocketMQ says so in each answer."""
    region: str = "DefaultRegion"
    """The broker's ``region_id``."""
    transactions: int = 0
    """Version of the native end of transactions; 0: only END_TRANSACTION, which is not reliably answered."""
    staged_transactions: int = msgspec.field(default=0, name="named_transactions")
    """Version of staged transactions; 0: not served. The name on the wire is their first one."""
    nonce: str = ""
    """The nonce that AUTHENTICATE answers, fresh for each connection; empty if the server wants no proof. RocketMQ's
    servers, which announce nothing, want a signature with each request instead.
    """
    store_host: str = ""
    """``host:port`` that records and ids of messages of this broker hold; empty: what the client connects to."""


_R = RequestCode
SPECS: Final = (Spec(_R.HELLO, Pool.CONNECTION, ANYONE),)
