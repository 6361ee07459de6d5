"""Administrators' questions to running consumers, forwarded by the broker.

Lives here: GET_CONSUMER_RUNNING_INFO, CONSUME_MESSAGE_DIRECTLY and INVOKE_BROKER_TO_GET_CONSUMER_STATUS: find the
client, ask it, forward its answer (RocketMQ AdminBrokerProcessor.callConsumer, Broker2Client).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.auth.stored import check_stored
from pocketmq.broker.admin.admin_refused import AdminRefused
from pocketmq.broker.admin.group_admin import ConsumerNotOnline
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.client_table import ClientInfo, ClientTable
from pocketmq.broker.request.request_task import Buffers, Task, encode_answer
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message_id import parse_offset_msg_id
from pocketmq.common.record_codec import decode_record
from pocketmq.common.runner import LoopMailbox
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.access import SUB
from pocketmq.remoting.protocol.body import MessageQueue
from pocketmq.remoting.protocol.relay import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumerStatusBody,
    GetConsumerStatusRequestHeader,
)
from pocketmq.remoting.protocol.spec import Header
from pocketmq.remoting.server import Connection
from pocketmq.store.message_store import MessageStore

RELAY_TIMEOUT_MS: Final = 10_000
"""Broker2Client.callClient."""
MEMBERS_MAX: Final = 1_000
"""Members of one group whose status is requested at once."""

LaterHandler = Callable[[Task], None]
"""Takes a task and answers it later, in the loop's thread."""


@dataclass(slots=True, eq=False)
class ConsumerRelay:
    """Handlers in the admin worker's thread; the answers come through the loop."""

    config: BrokerConfig
    store: MessageStore
    clients: ClientTable[Connection]
    mailbox: LoopMailbox

    def later_handlers(self) -> Mapping[int, LaterHandler]:
        """Return the handler of each code."""
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._status,
        }

    def _running_info(self, task: Task) -> None:
        header: Any = task.request.header
        client = self._find(header.consumer_group, header.client_id)
        self.mailbox.post(self._ask, task, client, header.consumer_group, header, b"")

    def _consume_directly(self, task: Task) -> None:
        header: Any = task.request.header
        client = self._find(header.consumer_group, header.client_id)
        _, offset = parse_offset_msg_id(header.msg_id)
        record = self.store.read_record(offset)
        if record is None:
            raise AdminRefused(f"can not find message by the offset, {offset}")
        check_stored(task.request, decode_record(record, check_crc=False).topic, SUB)
        question = ConsumeMessageDirectlyRequestHeader(
            consumer_group=header.consumer_group,
            client_id=header.client_id,
            msg_id=header.msg_id,
            broker_name=self.config.broker_name,
            topic=header.topic,
        )
        self.mailbox.post(self._ask, task, client, header.consumer_group, question, record)

    def _find(self, group: str, client_id: str) -> ClientInfo[Connection]:
        known = self.clients.consumer_group(group)
        for client in [] if known is None else known.clients.values():
            if client.client_id == client_id:
                return client
        raise AdminRefused(f"The Consumer <{group[:128]}> <{client_id[:128]}> not online")

    @staticmethod
    def _ask(task: Task, client: ClientInfo[Connection], group: str, header: Header, body: bytes) -> None:
        def done(result: Response | PocketMQError) -> None:
            if isinstance(result, PocketMQError):
                text = f"consumer <{group[:128]}> <{client.client_id}> timeout: {result}"
                respond(task, encode_answer(task.request, ResponseCode.CONSUME_MSG_TIMEOUT, remark=text))
            else:
                respond(task, encode_answer(task.request, result.code, remark=result.remark, body=result.body))

        client.connection.request_nowait(task.request.code, header, body, timeout_ms=RELAY_TIMEOUT_MS, done=done)

    def _status(self, task: Task) -> None:
        header: Any = task.request.header
        known = self.clients.consumer_group(header.group)
        members = [] if known is None else list(known.clients.values())[:MEMBERS_MAX]
        if header.client_addr:
            members = [
                client for client in members if header.client_addr in (client.client_id, client.connection.remote)
            ]
        if not members:
            raise ConsumerNotOnline(f"No Any Consumer online in the consumer group: [{header.group[:128]}]")
        self.mailbox.post(_ask_all, task, members, GetConsumerStatusRequestHeader(header.topic, header.group))


def _ask_all(task: Task, members: list[ClientInfo[Connection]], header: Header) -> None:
    """Ask every member, answer when all have answered or failed; failures are left out, as with RocketMQ."""
    table: dict[str, dict[MessageQueue, int]] = {}
    waiting = len(members)

    def taker(client_id: str) -> Callable[[Response | PocketMQError], None]:
        return lambda result: take(client_id, result)

    def take(client_id: str, result: Response | PocketMQError) -> None:
        nonlocal waiting
        waiting -= 1
        if isinstance(result, Response) and result.code == ResponseCode.SUCCESS:
            try:
                table[client_id] = ConsumerStatusBody.decode(bytes(result.body)).message_queue_table
            except PocketMQError:  # an undecodable answer is left out as well
                pass
        if waiting == 0:
            respond(task, encode_answer(task.request, body=ConsumerStatusBody(consumer_table=table).encode()))

    for client in members:
        client.connection.request_nowait(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            header,
            timeout_ms=RELAY_TIMEOUT_MS,
            done=taker(client.client_id),
        )


def respond(task: Task, buffers: Buffers) -> None:
    """Answer a task that a handler took over. Loop thread."""
    if not task.connection.closed and not task.request.oneway:
        task.connection.respond(buffers)
