"""Administration of queue locks: the holders of the queues of ordered groups, and releasing a lock.

Lives here: ``QueueLockStatus``, ``queue_locks``, ``release_lock``: LOCK_LIST and LOCK_RELEASE of PocketMQ's brokers.
"""

from dataclasses import dataclass

from pocketmq.client.admin.admin import Admin
from pocketmq.client.connection.instance import check_answer
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import ClientError
from pocketmq.common.errors import Cause
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.lock import LockInfo, LockListRequestHeader, LockReleaseRequestHeader, LockTableBody
from pocketmq.remoting.protocol.spec import Header


class LocksUnknown(ClientError):
    """A broker does not list its locks: RocketMQ's do not."""

    default_cause = Cause.BAD_REQUEST


class LockNotFound(ClientError):
    """The lock does not exist, or no longer exists."""

    default_cause = Cause.BAD_REQUEST


@dataclass(slots=True, frozen=True)
class QueueLockStatus:
    """One lock. ``info`` has holder, times in ms, token and waiting clients; ``max_live_ms``: how long the broker keeps
    it without renewal."""

    queue: MessageQueue
    info: LockInfo
    max_live_ms: int

    @property
    def is_expired(self) -> bool:
        """Whether any client may take it now."""
        return self.info.expires_in_ms < 0


async def queue_locks(admin: Admin, *, group: str = "", topic: str = "") -> tuple[list[QueueLockStatus], int]:
    """Return the locks of all masters in the order of group and queue, and how many more there are.

    Raises ``LocksUnknown`` for a broker that is not PocketMQ's.
    """
    found: list[QueueLockStatus] = []
    left_out = 0
    for name, address in (await admin.masters()).items():
        body = await _ask(admin, name, address, RequestCode.LOCK_LIST, LockListRequestHeader(group, topic))
        table = decode_body(body, LockTableBody)
        left_out += table.left_out
        found += [
            QueueLockStatus(MessageQueue(info.topic, name, info.queue_id), info, table.lock_max_live_time)
            for info in table.locks
        ]
    return sorted(found, key=lambda lock: (lock.info.consumer_group, lock.queue)), left_out


async def known_locks(admin: Admin, *, group: str = "", topic: str = "") -> dict[MessageQueue, QueueLockStatus]:
    """Return the locks of a group or topic by queue; none where a broker lists no locks, as RocketMQ's."""
    try:
        locks, _ = await queue_locks(admin, group=group, topic=topic)
    except LocksUnknown:
        return {}
    return {lock.queue: lock for lock in locks}


async def release_lock(admin: Admin, lock: QueueLockStatus) -> None:
    """Release the lock that was seen; a later holder's lock stays. Raises ``LockNotFound``."""
    name = lock.queue.broker_name
    address = (await admin.masters(broker=name))[name]
    info = lock.info
    header = LockReleaseRequestHeader(info.consumer_group, info.topic, info.queue_id, info.fencing_token)
    await _ask(admin, name, address, RequestCode.LOCK_RELEASE, header)


async def _ask(admin: Admin, name: str, address: str, code: int, header: Header) -> bytes:
    timeout_ms = admin.instance.options.api_timeout_ms
    connection = await admin.instance.connection_to(address, name, timeout_ms=timeout_ms)
    response = await connection.channel.request(code, header, timeout_ms=timeout_ms)
    if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise LocksUnknown(
            f"the locks of {name} are not known",
            why="it is not a PocketMQ broker of this version",
            hint="a RocketMQ broker writes them into its lock.log only",
        )
    if response.code == ResponseCode.QUERY_NOT_FOUND:
        raise LockNotFound("the lock was not released", why=response.remark)
    check_answer(response, "locks refused", address)
    return bytes(response.body)
