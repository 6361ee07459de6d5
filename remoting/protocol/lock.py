"""Queue locks of ordered consumption: RocketMQ's two requests with PocketMQ's fencing tokens, and the table of locks.

A RocketMQ client asks without the fields of ``OwnLockBatchRequestBody`` and gets RocketMQ's answer; a RocketMQ broker
ignores them, and its answer decodes as ``OwnLockBatchResponseBody`` without tokens.

Access: RocketMQ 5.3.3 ``DefaultAuthorizationContextBuilder`` for 41 and 42: the group and each topic of the body. Our
decision: LOCK_LIST shows the locks of all groups and needs Get on the cluster; LOCK_RELEASE disturbs a group as a reset
of offsets does, and needs what 222 needs.
"""

from typing import Final

import msgspec

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import GET_CLUSTER, SUB_BODY, UPDATE, group, needs, topic
from pocketmq.remoting.protocol.body import Body, MessageQueue
from pocketmq.remoting.protocol.spec import Header, Int, Long, Pool, Spec


class LockListRequestHeader(Header, frozen=True):
    """LOCK_LIST; an empty name means all."""

    consumer_group: str = ""
    topic: str = ""
    locks_max: Int = 10_000


class LockReleaseRequestHeader(Header, frozen=True):
    """LOCK_RELEASE; ``fencing_token`` names the lock to release: a later one stays."""

    consumer_group: str
    topic: str
    queue_id: Int
    fencing_token: Long


class LockBatchRequestBody(Body):
    """LOCK_BATCH_MQ, UNLOCK_BATCH_MQ."""

    consumer_group: str = ""
    client_id: str = ""
    mq_set: list[MessageQueue] = []


class LockBatchResponseBody(Body):
    """LOCK_BATCH_MQ: the queues that the client holds now."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)


class OwnLockBatchRequestBody(LockBatchRequestBody):
    """LOCK_BATCH_MQ as a PocketMQ client asks."""

    fencing: bool = False
    """The client understands tokens, and asks for the holders of the locks that it does not get."""
    watches_connection: bool = False
    """The client stops consuming when this connection breaks, so that the broker may release its locks then."""


class RefusedLock(Body):
    """A requested queue that was refused; times in ms."""

    queue: MessageQueue
    why: str = ""
    """``held``, ``unknown`` (no such queue here) or ``full`` (the broker keeps no more locks)."""
    holder: str = ""
    holder_address: str = ""
    age_ms: int = 0
    """Time since the holder got the lock."""
    expires_in_ms: int = 0
    """Time until another client may take it over, unless the holder renews it."""


class OwnLockBatchResponseBody(Body):
    """LOCK_BATCH_MQ to a client that asked for ``fencing``."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)
    fencing_tokens: list[int] = []
    """The token of each queue of ``lock_ok_mq_set``; empty from a broker without tokens."""
    lock_max_live_time: int = 0
    """After how many ms without renewal the broker gives a lock to another client; 0: it did not say."""
    refused: list[RefusedLock] = []


class LockWaiter(Body):
    """A client refused since the lock's holder last changed; times in ms."""

    client_id: str = ""
    waiting_ms: int = 0
    """Time since its first refusal."""
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
    """Negative: it expired so long ago, and no client has taken it since."""
    release_in_ms: int = -1
    """The holder's connection is gone: the lock is released in so many ms; -1: it is open, or its end does not
    count."""
    fencing_token: int = 0
    waiting: list[LockWaiter] = []


class LockTableBody(Body):
    """LOCK_LIST: locks sorted by group, topic and queue; ``left_out`` more did not fit."""

    broker_name: str = ""
    lock_max_live_time: int = 0
    locks: list[LockInfo] = []
    left_out: int = 0


_R = RequestCode
SPECS: Final = (
    Spec(_R.LOCK_BATCH_MQ, Pool.LOCK, SUB_BODY, body=OwnLockBatchRequestBody, answer=OwnLockBatchResponseBody),
    Spec(_R.UNLOCK_BATCH_MQ, Pool.LOCK, SUB_BODY, body=LockBatchRequestBody),
    Spec(_R.LOCK_LIST, Pool.LOCK, GET_CLUSTER, LockListRequestHeader, answer=LockTableBody),
    Spec(
        _R.LOCK_RELEASE,
        Pool.LOCK,
        needs(topic("topic", UPDATE), group("consumer_group", UPDATE)),
        LockReleaseRequestHeader,
    ),
)
