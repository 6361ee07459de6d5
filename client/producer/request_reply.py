"""Requests: messages whose sender waits for a consumer's reply.

Lives here: ``Requests`` behind ``Producer.request``, ``NoReply``. The message kinds are in
``message.request_message``, the table of waiting requests is ``connection.reply_table``.
"""

import asyncio
import uuid
import weakref
from collections.abc import Callable

from pocketmq.client.connection.instance import BrokerConnection, TaskSet, retrieve_exception
from pocketmq.client.connection.reply_table import REQUESTS_MAX, reply_table
from pocketmq.client.errors import ClientError, NotStarted, SendTimeout
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.message.request_message import RequestMessage
from pocketmq.client.message.validation import check_message
from pocketmq.client.producer.selectors import QueueSelector
from pocketmq.client.producer.send_port import SendPort
from pocketmq.common import record as names
from pocketmq.common.errors import Cause, PocketMQError, Stored
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RequestTimeout

ReplyDone = Callable[[ReceivedMessage | PocketMQError], None]
"""Gets the reply or the error, once, on the event loop."""


class NoReply(RequestTimeout):
    """No reply came in time (RocketMQ RequestTimeoutException, code 10006).

    ``receipt`` says where the request is stored, None if no broker has confirmed it. Whether a consumer has seen it is
    unknown; a later reply is refused.
    """

    code = ResponseCode.REQUEST_TIMEOUT_EXCEPTION

    def __init__(
        self, what: str, *, why: str = "", hint: str = "", stored: Stored, receipt: Receipt | None, correlation_id: str
    ) -> None:
        super().__init__(what, why=why, hint=hint, stored=stored)
        self.receipt = receipt
        self.correlation_id = correlation_id


class Requests:
    """The requests of one producer."""

    def __init__(self, port: SendPort) -> None:
        self._port = port
        self._instance = port.instance
        self._introduced: weakref.WeakSet[ClientChannel] = weakref.WeakSet()
        self._futures: set[asyncio.Future[ReceivedMessage]] = set()
        self._tasks = TaskSet(port.supervisor)

    async def request(
        self, message: Message, selector: QueueSelector | None, timeout_ms: int | None
    ) -> ReceivedMessage:
        """Send ``message`` and return the reply; see ``Producer.request``."""
        port, instance = self._port, self._instance
        instance.check_process()
        timeout_ms = port.limit_ms(timeout_ms)
        check_message(message, port.options.max_message_size)
        deadline_ns = instance.clock.monotonic_ns() + timeout_ms * 1_000_000
        correlation_id = str(uuid.UUID(int=instance.random.getrandbits(128), version=4))
        system = {
            names.CORRELATION_ID: correlation_id,
            names.REPLY_TO_CLIENT: instance.client_id,
            names.TTL: str(timeout_ms),
        }
        request = RequestMessage(message, message.topic, system)
        table = reply_table(instance)
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[ReceivedMessage] = loop.create_future()
        table.add(correlation_id, reply)
        self._futures.add(reply)
        try:
            await self._introduce(message.topic, timeout_ms)
            sending = port.send_nowait(request, selector=selector, timeout_ms=self._left_ms(deadline_ns))
            sending.add_done_callback(retrieve_exception)
            await asyncio.wait(
                (reply, sending), timeout=self._left_ms(deadline_ns) / 1000, return_when=asyncio.FIRST_COMPLETED
            )
            if not reply.done() and sending.done():
                if not isinstance(sending.exception(), SendTimeout):
                    sending.result()  # raises the error of the send: then no reply can come
                await asyncio.wait((reply,), timeout=self._left_ms(deadline_ns) / 1000)
            if not reply.done():
                raise _no_reply(message.topic, timeout_ms, correlation_id, sending)
            if instance.telemetry is not None:
                instance.telemetry.received("", [reply.result()], deadline_ns - timeout_ms * 1_000_000)
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
        """Fail the requests that wait for replies."""
        for future in list(self._futures):
            if not future.done():
                future.set_exception(_stopped())

    async def wait_closed(self) -> None:
        """Wait until the background requests have ended."""
        await self._tasks.wait(1.0)
        await self._tasks.cancel()

    def _left_ms(self, deadline_ns: int) -> int:
        return max(int((deadline_ns - self._instance.clock.monotonic_ns()) / 1e6), 1)

    async def _introduce(self, topic: str, timeout_ms: int) -> None:
        """Let the topic's brokers know this client before the request leaves (RocketMQ prepareSendRequest).

        The broker of a connection opened by another user of the instance does not know this producer yet. Brokers
        without a connection are connected in the background: one that is dead must not hold up a request to another.
        """
        route = await self._instance.route_for_send(topic, timeout_ms=timeout_ms)
        unknown: list[BrokerConnection] = []
        for broker in route.brokers.values():
            connection = self._instance.open_connection(broker.broker_name)
            if connection is not None:
                if connection.channel not in self._introduced:
                    unknown.append(connection)
            elif broker.master and len(self._tasks) < REQUESTS_MAX:
                self._tasks.spawn(self._connect(broker.broker_name), "pocketmq-request-connect")
        if unknown:
            await asyncio.gather(*(self._send_heartbeat(connection, timeout_ms) for connection in unknown))

    async def _connect(self, broker_name: str) -> None:
        try:
            await self._instance.connection(broker_name, timeout_ms=self._instance.options.connect_timeout_ms)
        except PocketMQError as error:
            self._instance.log.info("request_broker_not_connected", broker=broker_name, error=str(error))

    async def _send_heartbeat(self, connection: BrokerConnection, timeout_ms: int) -> None:
        try:
            await self._instance.beat(connection, timeout_ms=min(timeout_ms, self._instance.options.api_timeout_ms))
            self._introduced.add(connection.channel)
        except PocketMQError as error:
            self._instance.log.info("request_broker_not_told", address=connection.address, error=str(error))


def _no_reply(topic: str, timeout_ms: int, correlation_id: str, sending: "asyncio.Future[Receipt]") -> NoReply:
    """Return the error, with the known state of the request."""
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
