"""Moves consumer groups to other offsets, and deletes groups.

Lives here: ``GroupMove``, ``plan_moves`` (a group's offsets before and after, by position, time or offset),
``move_group``, ``delete_group``, ``groups_of_topic``, ``GroupOnline``.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pocketmq.client.connection.instance import check_answer
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import ClientError, OffsetIllegal
from pocketmq.client.pull.offsets import StartPosition, start_timestamp_ms
from pocketmq.client.pull.pull_wire import PullWire
from pocketmq.client.together import together
from pocketmq.common.errors import Cause
from pocketmq.common.topics import check_group_name
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.client import ConsumerGroupRequestHeader
from pocketmq.remoting.protocol.group import ConsumerConnection, DeleteSubscriptionGroupRequestHeader, GroupList
from pocketmq.remoting.protocol.offset import ResetOffsetRequestHeader
from pocketmq.remoting.protocol.spec import Header
from pocketmq.remoting.protocol.topic import TopicRequestHeader

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin

RESET_TO_END_MS: Final = -1
"""The timestamp of a reset that names its offset (RocketMQ 5.3 ResetOffsetRequestHeader)."""


class GroupOnline(ClientError):
    """A group has connected consumers, which would overwrite the change."""

    default_cause = Cause.BAD_REQUEST


@dataclass(slots=True, frozen=True)
class GroupMove:
    """A group's offset in one queue; ``before``: -1 if it has none yet."""

    queue: MessageQueue
    before: int
    after: int


async def plan_moves(
    admin: "Admin",
    group: str,
    topic: str,
    to: StartPosition | None = None,
    *,
    offset: int | None = None,
    queues: Collection[MessageQueue] = (),
) -> list[GroupMove]:
    """Return where ``move_group`` would put a group: ``"earliest"``, ``"latest"``, a datetime or ms since 1970, or
    ``offset``; in all queues of the topic, or those in ``queues``. Changes nothing.

    Raises ``OffsetIllegal`` for an offset that a queue does not have, ``NoRoute``.
    """
    check_group_name(group)
    if to == "committed":
        raise OffsetIllegal("seek refused", why="a group is at its committed offset already")
    if (to is None) == (offset is None):
        raise OffsetIllegal("seek refused", why="either a position or an offset says where to")
    timestamp_ms = None if to is None else start_timestamp_ms(to)
    route = await admin.instance.route(topic, timeout_ms=admin.instance.options.api_timeout_ms)
    wire = PullWire(admin.instance, group)

    async def move(queue: MessageQueue) -> GroupMove:
        if offset is not None:
            after = await _checked_offset(wire, queue, offset)
        elif timestamp_ms is not None:
            after = await wire.offset_by_time(queue, timestamp_ms)
        else:
            after = await (wire.min_offset(queue) if to == "earliest" else wire.max_offset(queue))
        return GroupMove(queue, await wire.stored_offset(queue, zero_if_young=False), after)

    known = set(route.read_queues)
    missing = sorted(set(queues) - known)
    if missing:
        raise OffsetIllegal(
            "seek refused", why=f"{topic} has no queue {missing[0].queue_id} on {missing[0].broker_name}"
        )
    return await together(move, sorted(queues or known))


async def _checked_offset(wire: PullWire, queue: MessageQueue, offset: int) -> int:
    first, end = await wire.min_offset(queue), await wire.max_offset(queue)
    if not first <= offset <= end:
        raise OffsetIllegal(
            "seek refused", why=f"queue {queue.queue_id} on {queue.broker_name} has offsets from {first} to {end}"
        )
    return offset


async def move_group(
    admin: "Admin", group: str, moves: Sequence[GroupMove], to: StartPosition | None = None, *, force: bool = False
) -> None:
    """Store the offsets of planned moves, which are of one topic.

    Raises ``GroupOnline`` while consumers are connected, since they go on from their own positions and commit those;
    ``force`` stores the offsets anyway, and makes the consumers continue there. ``to`` is the planned position:
    RocketMQ's brokers take a time, not an offset, to notify consumers.
    """
    if not moves:
        return
    masters = await admin.masters()
    if not force:
        await require_offline(admin, group, masters.values(), f"group {group} not moved")
    wire = PullWire(admin.instance, group)
    await together(lambda each: wire.store_offset(each.queue, each.after), moves)
    if force:
        timestamp_ms = None if to is None else start_timestamp_ms(to)
        time_ms = timestamp_ms if timestamp_ms is not None else 0 if to == "earliest" else RESET_TO_END_MS
        for name in sorted({each.queue.broker_name for each in moves}):
            here = [each for each in moves if each.queue.broker_name == name]
            await _send_reset(admin, name, masters[name], group, here, time_ms)


async def _send_reset(
    admin: "Admin", broker_name: str, address: str, group: str, moves: Sequence[GroupMove], timestamp_ms: int
) -> None:
    """Let a broker reset its queues again, and notify the group's consumers, if there are any.

    RocketMQ gets the time: 4.9 does not know the fields for one queue and its offset, and would reset to the end.
    """
    timeout_ms = admin.instance.options.api_timeout_ms
    connection = await admin.instance.connection_to(address, broker_name, timeout_ms=timeout_ms)
    topic = moves[0].queue.topic
    headers = [ResetOffsetRequestHeader(topic, group, timestamp_ms, is_force=True)]
    if connection.announcement is not None:
        headers = [
            ResetOffsetRequestHeader(
                topic, group, RESET_TO_END_MS, is_force=True, queue_id=each.queue.queue_id, offset=each.after
            )
            for each in moves
        ]
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    what = f"reset of {topic} for {group} refused"
    await together(lambda header: _ask(admin, address, code, header, what, ResponseCode.CONSUMER_NOT_ONLINE), headers)


async def groups_of_topic(admin: "Admin", topic: str, addresses: Iterable[str]) -> list[str]:
    """Return the groups that have offsets in a topic or subscribe to it, as these brokers know them."""
    header, what = TopicRequestHeader(topic), f"groups of {topic} refused"
    found: set[str] = set()
    for address in addresses:
        response = await _ask(admin, address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header, what)
        found.update(decode_body(response.body, GroupList).group_list)
    return sorted(found)


async def require_offline(admin: "Admin", group: str, addresses: Iterable[str], what: str) -> None:
    """Raise ``GroupOnline`` if a broker knows consumers of the group; ``what`` was not done then."""
    header = ConsumerGroupRequestHeader(group)
    for address in addresses:
        response = await _ask(
            admin,
            address,
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            header,
            f"members of {group} refused",
            ResponseCode.CONSUMER_NOT_ONLINE,
        )
        if response.code != ResponseCode.SUCCESS:
            continue
        members = decode_body(response.body, ConsumerConnection).connection_set
        if members:
            raise GroupOnline(
                what,
                why=f"{len(members)} consumers are connected, {members[0].client_id} first",
                hint="stop them, or force it",
            )


async def delete_group(
    admin: "Admin", group: str, *, keep_offsets: bool = False, force: bool = False
) -> dict[str, str]:
    """Delete a group, and its offsets unless ``keep_offsets``, from every master; return the masters.

    Raises ``GroupOnline`` while consumers are connected, which would create it again; ``force`` deletes it anyway.
    """
    check_group_name(group)
    masters = await admin.masters()
    what = f"group {group} not deleted"
    if not force:
        await require_offline(admin, group, masters.values(), what)
    header = DeleteSubscriptionGroupRequestHeader(group, clean_offset=not keep_offsets, remove_offset=not keep_offsets)
    for address in masters.values():
        await _ask(admin, address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header, what)
    return masters


async def _ask(admin: "Admin", address: str, code: int, header: Header, what: str, *accepted: int) -> Response:
    timeout_ms = admin.instance.options.api_timeout_ms
    connection = await admin.instance.connection_to(address, address, timeout_ms=timeout_ms)
    return check_answer(await connection.channel.request(code, header, timeout_ms=timeout_ms), what, address, *accepted)
