"""Request-reply: a message whose sender waits for an answer from whoever consumes it.

Lives here: ``reply_to`` for consumers, ``Requests`` behind ``Producer.request``, the table of those that wait
(``ReplyTable``, one for a client instance), the errors.

As RocketMQ's (RequestFutureHolder, MessageUtil, ClientRemotingProcessor): the request carries a correlation id, the
client id of its sender and a time to live; the reply goes to the topic ``<cluster>_REPLY_TOPIC`` as
SEND_REPLY_MESSAGE_V2, and the broker pushes it to the connection of that client.
"""

import asyncio
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pocketmq.client.connection.instance import ClientInstance, Link, TaskSet
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import ClientError, NotStarted, SendTimeout
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.message.validation import check_message
from pocketmq.client.producer.producer_options import SEND_TIMEOUT_MS_MAX, check_range
from pocketmq.client.producer.selectors import QueueSelector
from pocketmq.common import properties as names
from pocketmq.common.errors import Cause, MessageIllegal, PocketMQError, Stored
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.common.properties import decode_properties, encode_properties
from pocketmq.common.record import HOST_ZERO_V4, encode_host
from pocketmq.common.record_codec import encode_record, received_message
from pocketmq.common.topics import REPLY_SUFFIX
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.codec import Request, encode_response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingTooMuchRequestError, RequestTimeout
from pocketmq.remoting.protocol.send import ReplyMessageRequestHeader

if TYPE_CHECKING:
    from pocketmq.client.producer.producer import Producer

REPLY_FLAG: Final = "reply"
"""Value of MSG_TYPE of a reply (RocketMQ MixAll.REPLY_MESSAGE_FLAG)."""
REQUESTS_MAX: Final = 10_000
"""Requests of one client instance that wait for their replies."""

ReplyDone = Callable[[ReceivedMessage | PocketMQError], None]
"""Gets the reply or the error, once, on the event loop."""


class NoReply(RequestTimeout):
    """No reply came in time (RocketMQ RequestTimeoutException, code 10006).

    ``receipt`` says where the request is stored, None if no broker has confirmed it. Whether a consumer has seen it is
    not known; a reply that comes later is refused.
    """

    code = ResponseCode.REQUEST_TIMEOUT_EXCEPTION

    def __init__(
        self, what: str, *, why: str = "", hint: str = "", stored: Stored, receipt: Receipt | None, correlation_id: str
    ) -> None:
        super().__init__(what, why=why, hint=hint, stored=stored)
        self.receipt = receipt
        self.correlation_id = correlation_id


class ReplyIllegal(ClientError):
    """A message cannot be replied to: it is no request (RocketMQ CREATE_REPLY_MESSAGE_EXCEPTION, code 10007)."""

    code = ResponseCode.CREATE_REPLY_MESSAGE_EXCEPTION
    default_cause = Cause.BAD_REQUEST


class _Linked(Message):
    """A message with properties of the system's own."""

    __slots__ = ("system_properties",)

    is_plain_kind = False

    def __init__(self, message: Message, topic: str, system_properties: Mapping[str, str]) -> None:
        if message.delay_time_level or message.is_timed:
            raise MessageIllegal(
                "message refused", why="a request or reply cannot be delayed", hint="send it without the delay"
            )
        super().__init__(
            topic,
            message.body,
            tags=message.tags,
            keys=message.keys,
            properties=message.properties,
            flag=message.flag,
            wait_store_msg_ok=message.wait_store_msg_ok,
            sharding_key=message.sharding_key,
        )
        self.system_properties = dict(system_properties)

    def property_map(self, uniq_key: str = "") -> dict[str, str]:
        """Return the message's properties and those of the system."""
        return {**super().property_map(uniq_key), **self.system_properties}


class RequestMessage(_Linked):
    """A message whose sender waits for a reply. Only ``Producer.request`` makes one."""

    __slots__ = ()


class ReplyMessage(_Linked):
    """The reply to a request; send it with any producer of the same cluster."""

    __slots__ = ("broker_name",)

    def __init__(self, message: Message, topic: str, system_properties: Mapping[str, str], broker_name: str) -> None:
        super().__init__(message, topic, system_properties)
        self.broker_name = broker_name

    def queue_of(self, queues: Sequence[MessageQueue]) -> MessageQueue | None:
        """Return a queue of the broker that had the request: there its sender is surely connected. None: any."""
        return next((queue for queue in queues if queue.broker_name == self.broker_name), None)


def reply_to(
    request: ReceivedMessage,
    body: bytes,
    *,
    tags: str = "",
    keys: Sequence[str] | str = (),
    properties: Mapping[str, str] | None = None,
) -> ReplyMessage:
    """Return the reply to a request that was consumed (RocketMQ MessageUtil.createReplyMessage).

    Raises ``ReplyIllegal`` for a message that is no request. Use: ``await producer.send(reply_to(message, b"..."))``.
    """
    if not isinstance(request, ReceivedMessage):
        raise ReplyIllegal(
            "create reply message fail", why=f"{type(request).__name__} is no received message", hint="pass the request"
        )
    known = request.properties
    for name in (names.CLUSTER, names.REPLY_TO_CLIENT, names.CORRELATION_ID):
        if not known.get(name):
            raise ReplyIllegal(
                "create reply message fail",
                why=f"requestMessage error, property[{name}] is null.",
                hint="reply only to what Producer.request has sent",
            )
    system = {
        names.MSG_TYPE: REPLY_FLAG,
        names.CORRELATION_ID: known[names.CORRELATION_ID],
        names.REPLY_TO_CLIENT: known[names.REPLY_TO_CLIENT],
    }
    if names.TTL in known:
        system[names.TTL] = known[names.TTL]
    topic = known[names.CLUSTER] + REPLY_SUFFIX
    message = Message(topic, body, tags=tags, keys=keys, properties=properties)
    return ReplyMessage(message, topic, system, request.broker_name)


def is_request(message: ReceivedMessage) -> bool:
    """Tell whether the sender of a message waits for a reply."""
    known = message.properties
    return bool(known.get(names.CORRELATION_ID) and known.get(names.REPLY_TO_CLIENT)) and names.MSG_TYPE not in known


class ReplyTable:
    """Who waits for which reply, in one client instance: it answers the pushes of all brokers. Loop thread only."""

    def __init__(self, instance: ClientInstance, count_max: int = REQUESTS_MAX) -> None:
        self._instance = instance
        self._count_max = count_max
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self.late = 0
        """Replies that nobody waited for any more."""
        instance.add_request_handler(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._on_request)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, correlation_id: str, future: "asyncio.Future[ReceivedMessage]") -> None:
        """Let ``future`` wait. Raises ``RemotingTooMuchRequestError`` when too many do."""
        if len(self._waiting) >= self._count_max:
            raise RemotingTooMuchRequestError(
                "request refused", why=f"{len(self._waiting)} wait for their replies", hint="wait for some of them"
            )
        self._waiting[correlation_id] = future

    def remove(self, correlation_id: str) -> None:
        """Wait no longer."""
        self._waiting.pop(correlation_id, None)

    def _on_request(self, channel: ClientChannel, request: Request) -> None:
        """Take a reply, and tell the broker whether somebody got it."""
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
        """Hand a reply to who waits for it; return why that was not possible, or nothing."""
        header = request.header
        if not isinstance(header, ReplyMessageRequestHeader):
            return "it has no header"
        link = self._instance.link_of(channel)
        try:
            reply = _received(header, request.body, "" if link is None else link.broker_name, self._instance)
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
    """Return a pushed reply as a message; it has no place in a queue of its own. Raises ``PocketMQError``."""
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


class Requests:
    """The requests of one producer."""

    def __init__(self, producer: "Producer") -> None:
        self._producer = producer
        self._instance = producer.instance
        self._told: weakref.WeakSet[ClientChannel] = weakref.WeakSet()
        self._futures: set[asyncio.Future[ReceivedMessage]] = set()
        self._tasks = TaskSet(producer.instance.supervisor)

    async def request(
        self, message: Message, selector: QueueSelector | None, timeout_ms: int | None
    ) -> ReceivedMessage:
        """Send ``message`` and return the reply; see ``Producer.request``."""
        producer, instance = self._producer, self._instance
        instance.check_process()
        if timeout_ms is None:
            timeout_ms = producer.send_msg_timeout_ms
        check_range("timeout_ms", timeout_ms, 1, SEND_TIMEOUT_MS_MAX)
        check_message(message, producer.max_message_size)
        deadline_ns = instance.clock.monotonic_ns() + timeout_ms * 1_000_000
        correlation_id = str(uuid.UUID(int=instance.random.getrandbits(128), version=4))
        system = {
            names.CORRELATION_ID: correlation_id,
            names.REPLY_TO_CLIENT: instance.client_id,
            names.TTL: str(timeout_ms),
        }
        request = RequestMessage(message, message.topic, system)
        table = instance.reply_table
        if table is None:
            table = instance.reply_table = ReplyTable(instance)
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[ReceivedMessage] = loop.create_future()
        table.add(correlation_id, reply)
        self._futures.add(reply)
        try:
            await self._introduce(message.topic, timeout_ms)
            sending = producer.send_nowait(request, selector=selector, timeout_ms=self._left_ms(deadline_ns))
            sending.add_done_callback(_look_away)
            await asyncio.wait(
                (reply, sending), timeout=self._left_ms(deadline_ns) / 1000, return_when=asyncio.FIRST_COMPLETED
            )
            if not reply.done() and sending.done():
                if not isinstance(sending.exception(), SendTimeout):
                    sending.result()  # raises what the send failed with: then nobody can answer
                await asyncio.wait((reply,), timeout=self._left_ms(deadline_ns) / 1000)
            if not reply.done():
                raise _no_reply(message.topic, timeout_ms, correlation_id, sending)
            return reply.result()
        finally:
            table.remove(correlation_id)
            self._futures.discard(reply)

    def request_nowait(
        self, message: Message, selector: QueueSelector | None, timeout_ms: int | None, done: ReplyDone | None
    ) -> "asyncio.Task[ReceivedMessage]":
        """Do the same in the background; ``done`` gets the reply or the error."""
        task = self._tasks.spawn(self.request(message, selector, timeout_ms), "pocketmq-request")
        if done is not None:
            task.add_done_callback(lambda ended: self._call_back(ended, done))
        return task

    def _call_back(self, ended: "asyncio.Task[ReceivedMessage]", done: ReplyDone) -> None:
        error = _stopped() if ended.cancelled() else ended.exception()
        if error is not None and not isinstance(error, PocketMQError):
            error = ClientError("request failed", why=repr(error), cause=Cause.INTERNAL)
        try:
            done(ended.result() if error is None else error)
        except Exception as fault:  # the caller's own fault is no reason to lose the loop's other callbacks
            self._instance.log.error("request_callback_failed", error=repr(fault), exc_info=fault)

    def close(self) -> None:
        """Fail what waits for a reply."""
        for future in list(self._futures):
            if not future.done():
                future.set_exception(_stopped())

    async def wait_closed(self) -> None:
        """Wait until the background requests have told their callers."""
        await self._tasks.wait(1.0)
        await self._tasks.cancel()

    def _left_ms(self, deadline_ns: int) -> int:
        return max(int((deadline_ns - self._instance.clock.monotonic_ns()) / 1e6), 1)

    async def _introduce(self, topic: str, timeout_ms: int) -> None:
        """Let the topic's brokers know this client before the request leaves (RocketMQ prepareSendRequest).

        A connection that another user of the instance had opened knows nothing of this producer yet. Brokers without a
        connection are connected in the background: one that is dead must not hold up a request to another.
        """
        route = await self._instance.route(topic, timeout_ms=timeout_ms, for_send=True)
        untold: list[Link] = []
        for broker in route.brokers.values():
            link = self._instance.open_link(broker.broker_name)
            if link is not None:
                if link.channel not in self._told:
                    untold.append(link)
            elif broker.master and len(self._tasks) < REQUESTS_MAX:
                self._tasks.spawn(self._connect(broker.broker_name), "pocketmq-request-connect")
        if untold:
            await asyncio.gather(*(self._tell(link, timeout_ms) for link in untold))

    async def _connect(self, broker_name: str) -> None:
        try:
            await self._instance.link(broker_name, timeout_ms=self._instance.options.connect_timeout_ms)
        except PocketMQError as error:
            self._instance.log.info("request_broker_not_connected", broker=broker_name, error=str(error))

    async def _tell(self, link: Link, timeout_ms: int) -> None:
        try:
            await self._instance.beat(link, timeout_ms=min(timeout_ms, self._instance.options.api_timeout_ms))
            self._told.add(link.channel)
        except PocketMQError as error:
            self._instance.log.info("request_broker_not_told", address=link.address, error=str(error))


def _look_away(future: "asyncio.Future[Receipt]") -> None:
    """Take the error of a send whose reply, or end of time, came first."""
    if not future.cancelled():
        future.exception()


def _no_reply(topic: str, timeout_ms: int, correlation_id: str, sending: "asyncio.Future[Receipt]") -> NoReply:
    """Return the error, with what is known of the request."""
    receipt: Receipt | None = None
    if sending.done() and not sending.cancelled() and sending.exception() is None:
        receipt = sending.result()
    if receipt is None:
        why = "no broker has confirmed the request: it may be stored or not"
        hint = "check the brokers; a consumer that gets it later answers in vain"
        stored = Stored.UNKNOWN
    else:
        why = (
            f"the request is stored (broker {receipt.broker}, queue {receipt.queue_id}, offset {receipt.queue_offset}, "
            f"msg_id {receipt.msg_id}); whether a consumer has seen it is not known"
        )
        hint = f"does a consumer of {topic} run and answer with reply_to, and is it faster than {timeout_ms} ms?"
        stored = Stored.YES
    return NoReply(
        f"send request message to <{topic}> OK, but wait reply message timeout, {timeout_ms} ms."
        if receipt is not None
        else f"no reply to the request to {topic} within {timeout_ms} ms",
        why=why,
        hint=hint,
        stored=stored,
        receipt=receipt,
        correlation_id=correlation_id,
    )


def _stopped() -> NotStarted:
    return NotStarted("request given up", why="the producer was stopped", hint="wait for the replies before stop()")
