"""The replies that brokers push to a client instance, and the requests that wait for them.

Lives here: ``ReplyTable``, one for a client instance, and ``reply_table``, which finds or makes it.

As RocketMQ's (RequestFutureHolder, ClientRemotingProcessor): the broker pushes a reply as
PUSH_REPLY_MESSAGE_TO_CLIENT to the connection of the client that sent the request.
"""

import asyncio
from typing import Any, Final

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.common import record as names
from pocketmq.common.errors import MessageIllegal, PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.record import HOST_ZERO_V4, decode_properties, encode_host, encode_properties
from pocketmq.common.record_codec import encode_record, received_message
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.codec import Request, encode_response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingTooMuchRequestError
from pocketmq.remoting.protocol.send import ReplyMessageRequestHeader

REQUESTS_MAX: Final = 10_000
"""Requests of one client instance that wait for their replies."""


class ReplyTable:
    """The requests of one client instance that wait, by correlation id; answers the pushes of all brokers. Loop thread
    only."""

    def __init__(self, instance: ClientInstance, count_max: int = REQUESTS_MAX) -> None:
        self._instance = instance
        self._count_max = count_max
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self.late = 0
        """Replies whose request had ended already."""
        instance.add_request_handler(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._on_request)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, correlation_id: str, future: "asyncio.Future[ReceivedMessage]") -> None:
        """Register a waiting request. Raises ``RemotingTooMuchRequestError`` when too many wait."""
        if len(self._waiting) >= self._count_max:
            raise RemotingTooMuchRequestError(
                "request refused", why=f"{len(self._waiting)} wait for their replies", hint="wait for some of them"
            )
        self._waiting[correlation_id] = future

    def remove(self, correlation_id: str) -> None:
        """Remove a request."""
        self._waiting.pop(correlation_id, None)

    def _on_request(self, channel: ClientChannel, request: Request) -> None:
        """Take a reply, and answer the broker whether a request was waiting for it."""
        remark = self._take(channel, request)
        if remark:
            self._instance.log.info("reply_not_taken", address=channel.address, why=remark)
        if not request.oneway:
            channel.respond(
                encode_response(
                    ResponseCode.SYSTEM_ERROR if remark else ResponseCode.SUCCESS,
                    request.opaque,
                    request.code,
                    remark=remark,
                    serialize_type=request.serialize_type,
                )
            )

    def _take(self, channel: ClientChannel, request: Request) -> str:
        """Hand a reply to its request; return why that was not possible, or an empty string."""
        header = request.header
        if not isinstance(header, ReplyMessageRequestHeader):
            return "it has no header"
        connection = self._instance.connection_of(channel)
        try:
            reply = _received(
                header, request.body, "" if connection is None else connection.broker_name, self._instance
            )
        except PocketMQError as error:
            return f"process reply message fail: {error}"
        correlation_id = reply.properties.get(names.CORRELATION_ID, "")
        future = self._waiting.pop(correlation_id, None)
        if future is None or future.done():
            self.late += 1
            return f"receive reply message, but not matched any request, CorrelationId: {correlation_id[:100]}"
        future.set_result(reply)
        return ""


def _received(
    header: ReplyMessageRequestHeader, body: Any, broker_name: str, instance: ClientInstance
) -> ReceivedMessage:
    """Return a pushed reply as a message; it has no place in a queue. Raises ``PocketMQError``."""
    properties = decode_properties(header.properties.encode("utf-8", "replace"))
    properties[names.ARRIVE_TIME] = str(instance.clock.now_ms())
    record = encode_record(
        header.topic,
        body,
        queue_id=header.queue_id,
        properties=encode_properties(properties),
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=_host(header.born_host),
        store_timestamp=header.store_timestamp,
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times,
    )
    return received_message(record, broker_name)


def _host(text: str) -> bytes:
    """Return an address as a record holds it; zeros for what is none. Java writes ``/1.2.3.4:5``."""
    address, _, port = text.rpartition(":")
    address = address.rpartition("/")[2].strip("[]")
    try:
        return encode_host(address, int(port)) if 0 <= int(port) < 65_536 else HOST_ZERO_V4
    except (ValueError, MessageIllegal):
        return HOST_ZERO_V4


def reply_table(instance: ClientInstance) -> ReplyTable:
    """Return the table of ``instance``, made with the first request."""
    return instance.shared(ReplyTable, lambda: ReplyTable(instance))
