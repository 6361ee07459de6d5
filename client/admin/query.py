"""Finding single messages over all brokers of a topic.

Lives here: ``MessageFinder``: by key or unique id, by offset id, by (queue, offset); the answer of each broker, so that
"not found" can list the places searched.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pocketmq.client.admin.admin import END_OF_TIME_MS, QUERY_MESSAGES_MAX, Admin
from pocketmq.client.connection.instance import check_answer
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import NoRoute
from pocketmq.client.pull.pull_wire import PullWire
from pocketmq.common.addresses import parse_address
from pocketmq.common.errors import MessageIllegal, PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.message_id import parse_offset_msg_id
from pocketmq.common.record import host_text
from pocketmq.common.record_codec import received_message
from pocketmq.common.topics import check_topic_name
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.pull import QueryMessageRequestHeader, ViewMessageRequestHeader

TOOLS_GROUP = "TOOLS_CONSUMER"
"""The group of RocketMQ's own tools (MixAll.TOOLS_CONSUMER_GROUP)."""
AT_ONCE_MAX = 16
"""Brokers asked at the same time."""


@dataclass(slots=True, frozen=True)
class Asked:
    """The answer of one broker. ``found``: messages; ``remark``: its text if there was none, or the error."""

    broker_name: str
    address: str
    what: str
    found: int
    remark: str = ""
    failed: bool = False


@dataclass(slots=True)
class Found:
    """Messages, oldest first, and the brokers queried."""

    messages: list[ReceivedMessage] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def add(self, other: "Found") -> None:
        """Add another result; a message that two brokers of one name have counts once."""
        known = {(each.broker_name, each.physical_offset) for each in self.messages}
        self.messages += [each for each in other.messages if (each.broker_name, each.physical_offset) not in known]
        self.messages.sort(key=lambda each: (each.store_timestamp, each.broker_name, each.physical_offset))
        self.asked += other.asked


_Ask = Callable[[str, str], Awaitable[Found]]


class MessageFinder:
    """Queries the brokers of a topic. A failing broker is recorded, and the others are still queried."""

    def __init__(self, admin: Admin) -> None:
        self._instance = admin.instance
        self._admin = admin
        self._wire = PullWire(admin.instance, TOOLS_GROUP)
        self._gate = asyncio.Semaphore(AT_ONCE_MAX)

    @property
    def _timeout_ms(self) -> int:
        return self._instance.options.api_timeout_ms

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        unique: bool = False,
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME_MS,
        max_messages: int = 32,
    ) -> Found:
        """Return the newest ``max_messages`` messages with this key (or unique id) that were stored in [begin, end].

        Raises ``NoRoute`` for a topic that no broker has.
        """
        check_topic_name(topic)
        route = await self._instance.route(topic, timeout_ms=self._timeout_ms)
        header = QueryMessageRequestHeader(
            topic, key, max(1, min(max_messages, QUERY_MESSAGES_MAX)), begin_ms, end_ms, unique_key_query=unique
        )
        what = f"{'unique id' if unique else 'key'} {key} of {topic}"

        async def ask(name: str, address: str) -> Found:
            connection = await self._instance.connection_to(address, name, timeout_ms=self._timeout_ms)
            response = await connection.channel.request(RequestCode.QUERY_MESSAGE, header, timeout_ms=self._timeout_ms)
            check_answer(response, f"query of {topic} refused", address, ResponseCode.QUERY_NOT_FOUND)
            messages: list[ReceivedMessage] = []
            if response.code == ResponseCode.SUCCESS:
                from pocketmq.common.record_columns import received_messages  # NumPy: not at import

                messages = received_messages(response.body, None, name, check_crc=True)
            # the index holds hashes: other keys with the same hash come along
            messages = [each for each in messages if (each.msg_id == key if unique else key in each.keys)]
            return Found(messages, [Asked(name, address, what, len(messages), response.remark or "")])

        brokers = {name: broker.readable() for name, broker in route.brokers.items() if broker.readable()}
        found = await self._each(brokers, what, ask)
        found.messages = found.messages[-max_messages:]
        return found

    async def by_offset_id(self, msg_id: str) -> Found:
        """Return the message with this offset message id. Raises ``MessageIllegal`` for any other text."""
        host, offset = parse_offset_msg_id(msg_id)
        address = self._instance.name_servers.reachable(host_text(host))
        what = f"physical offset {offset}"
        names = {
            each: name
            for name, broker in (await self._admin.cluster_info()).broker_addr_table.items()
            for each in broker.broker_addrs.values()
        }
        is_known = address in names
        # a broker that advertises a name has its numeric address in ids
        brokers = {names[address]: address} if is_known else {}
        for each, name in () if is_known else names.items():
            if not _is_numeric(each):
                brokers.setdefault(name, each)
        if not brokers:
            known = ", ".join(sorted(names)) or "none"
            return Found([], [Asked("", address, what, 0, f"no broker of this cluster; known: {known}", failed=True)])

        async def ask(name: str, address: str) -> Found:
            connection = await self._instance.connection_to(address, name, timeout_ms=self._timeout_ms)
            response = await connection.channel.request(
                RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset), timeout_ms=self._timeout_ms
            )
            if response.code != ResponseCode.SUCCESS:
                return Found([], [Asked(name, address, what, 0, response.remark or "")])
            message = received_message(bytes(response.body), name, check_crc=True)
            if not is_known and message.store_host_bytes != host:
                return Found([], [Asked(name, address, what, 0, "the message there has another id")])
            return Found([message], [Asked(name, address, what, 1)])

        return await self._each(brokers, what, ask)

    async def by_queue_offset(self, topic: str, queue_id: int, offset: int, *, broker: str = "") -> Found:
        """Return the message at a queue offset: of each broker that has this queue, or of ``broker``."""
        check_topic_name(topic)
        route = await self._instance.route(topic, timeout_ms=self._timeout_ms)
        queues = {
            queue.broker_name: queue
            for queue in route.read_queues
            if queue.queue_id == queue_id and broker in ("", queue.broker_name)
        }
        what = f"offset {offset} of {topic} queue {queue_id}"
        if not queues:
            known = ", ".join(sorted({f"{queue.broker_name}:{queue.queue_id}" for queue in route.read_queues}))
            return Found([], [Asked(broker, "", what, 0, f"there is no such queue; known: {known}", failed=True)])

        async def ask(name: str, address: str) -> Found:
            return await self._at(queues[name], offset, what, address)

        return await self._each({name: route.brokers[name].readable() for name in queues}, what, ask)

    async def _at(self, queue: MessageQueue, offset: int, what: str, address: str) -> Found:
        (result,) = await self._wire.pull(queue.broker_name, [(queue, offset)], None, max_messages=1)
        from pocketmq.common.record_columns import received_messages  # NumPy: not at import

        messages = received_messages(bytes(result.body), result.sizes, queue.broker_name, check_crc=True)
        messages = [each for each in messages if each.queue_offset == offset]
        state = result.queues[0]
        remark = "" if messages else f"the queue holds offsets {state.min_offset} to {state.max_offset - 1}"
        if state.max_offset <= state.min_offset and not messages:
            remark = "the queue is empty"
        return Found(messages[:1], [Asked(queue.broker_name, address, what, len(messages[:1]), remark)])

    async def by_unique_id(self, unique_id: str, topics: list[str]) -> Found:
        """Search these topics for a unique id, in the caller's order; stop at the first hit."""
        found = Found()
        for topic in topics:
            try:
                found.add(await self.by_key(topic, unique_id, unique=True))
            except NoRoute as error:
                found.asked.append(Asked("", "", f"unique id of {topic}", 0, str(error), failed=True))
            if found.messages:
                break
        return found

    async def _each(self, brokers: dict[str, str], what: str, ask: _Ask) -> Found:
        async def one(name: str, address: str) -> Found:
            async with self._gate:
                try:
                    return await ask(name, address)
                except MessageIllegal:
                    raise
                except PocketMQError as error:
                    return Found([], [Asked(name, address, what, 0, str(error), failed=True)])

        found = Found()
        for each in await asyncio.gather(*(one(name, address) for name, address in brokers.items())):
            found.add(each)
        return found


def _is_numeric(address: str) -> bool:
    """Return whether an address has no name."""
    try:
        ipaddress.ip_address(parse_address(address)[0])
    except ValueError:
        return False
    return True
