"""A master's status and its slaves': structs for commands, metrics and logs.

Lives here: ``HaStatus``, ``SlaveStatus``.
"""

import msgspec

from pocketmq.store.ha.state import FencedBy


class SlaveStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One connected slave. Offsets and sizes are bytes.

    ``behind_ms``: the age of the newest data it has confirmed, 0 when it has everything; -1 when unknown (RocketMQ's
    protocol does not carry it). ``is_in_sync``: its confirmations count, and it is less than
    ``ha_slave_fallbehind_max`` behind.
    """

    node_id: str
    broker_id: int
    address: str
    ack_offset: int
    flushed_offset: int
    behind_bytes: int
    behind_ms: int
    is_in_sync: bool
    connected_ms: int
    sent_bytes: int
    protocol: str
    ack_policy: str


class HaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A master's side of replication.

    ``in_sync_count`` counts the master too, as ``in_sync_replicas`` does.
    """

    role: str
    epoch: int
    owner: str
    end_offset: int
    confirmed_offset: int
    in_sync_count: int
    in_sync_replicas: int
    total_replicas: int
    slaves: list[SlaveStatus]
    waiters: int
    served: int
    timeouts: int
    not_available: int
    refused: int
    fenced_by: FencedBy | None = None
    recovering: bool = False
