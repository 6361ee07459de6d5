"""Bodies about queue locks that RocketMQ does not have: fencing tokens, who holds a queue, the table of locks.

Lives here: what PocketMQ's own clients add to LOCK_BATCH_MQ (41) and read from its answer, and LOCK_LIST (30600).
A RocketMQ client asks without the fields of ``OwnLockBatchRequestBody`` and gets RocketMQ's answer; a RocketMQ broker
ignores them, and its answer decodes as ``OwnLockBatchResponseBody`` without tokens.
"""

import msgspec

from pocketmq.remoting.bodies import Body, LockBatchRequestBody, MessageQueue


class OwnLockBatchRequestBody(LockBatchRequestBody):
    """LOCK_BATCH_MQ as a PocketMQ client asks."""

    fencing: bool = False
    """The client understands tokens, and wants to hear who holds what it does not get."""
    watches_connection: bool = False
    """The client stops consuming when this connection breaks, so that the broker may release its locks then."""


class RefusedLock(Body):
    """A queue that was asked for and not given; times in ms."""

    queue: MessageQueue
    why: str = ""
    """``held``, ``unknown`` (no such queue here) or ``full`` (the broker keeps no more locks)."""
    holder: str = ""
    holder_address: str = ""
    age_ms: int = 0
    """Since the holder has had it."""
    expires_in_ms: int = 0
    """Until it may be taken over, if the holder does not renew it meanwhile."""


class OwnLockBatchResponseBody(Body):
    """LOCK_BATCH_MQ to a client that asked for ``fencing``."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)
    fencing_tokens: list[int] = []
    """The token of each queue of ``lock_ok_mq_set``; empty from a broker that has none."""
    lock_max_live_time: int = 0
    """After how many ms without renewal the broker gives a lock to another client; 0: it did not say."""
    refused: list[RefusedLock] = []


class LockWaiter(Body):
    """A client that was refused a lock since the holder last changed; times in ms."""

    client_id: str = ""
    waiting_ms: int = 0
    """Since it was refused first."""
    asked_ms_ago: int = 0
    refusals: int = 0


class LockInfo(Body):
    """One lock; times in ms."""

    consumer_group: str = ""
    topic: str = ""
    queue_id: int = 0
    client_id: str = ""
    address: str = ""
    age_ms: int = 0
    renewed_ms_ago: int = 0
    expires_in_ms: int = 0
    """Negative: it has expired so long ago, and nobody has taken it since."""
    release_in_ms: int = -1
    """The holder's connection is gone: released in so many ms; -1: it is there, or its end does not count."""
    fencing_token: int = 0
    waiting: list[LockWaiter] = []


class LockTableBody(Body):
    """LOCK_LIST: locks in the order of group, topic, queue; ``left_out`` more did not fit."""

    broker_name: str = ""
    lock_max_live_time: int = 0
    locks: list[LockInfo] = []
    left_out: int = 0
