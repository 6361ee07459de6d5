"""The simple consumer: a worker of a work queue, with messages that it acknowledges one by one.

    async with SimpleConsumer("thumbnails", topic="Uploads", namesrv="127.0.0.1:9876") as consumer:
        async for message in consumer:          # renewed while the body runs, acknowledged when the next is asked for
            await make_thumbnail(message.body)

Lives here: ``SimpleConsumer``.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Final, Literal

from pocketmq.client.connection.instance import ClientInstance, retrieve_exception
from pocketmq.client.connection.own_instance import instance_for
from pocketmq.client.errors import NotStarted, SubscriptionIllegal
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.pull.subscription import ALL, Subscription, parse_sql, parse_subscription, subscription_data
from pocketmq.client.simple.pop_lanes import PopLanes
from pocketmq.client.simple.pop_wire import ACKNOWLEDGE, NATIVE_MESSAGES_MAX, PopWire
from pocketmq.client.simple.popped_message import PoppedMessage, ReceiptExpired
from pocketmq.client.telemetry.switch import TelemetryArgument
from pocketmq.common.errors import ConfigError, PocketMQError
from pocketmq.common.topics import check_group_name, check_topic_name
from pocketmq.remoting.protocol.client import ConsumerData
from pocketmq.remoting.security.client_security import TLSArgument
from pocketmq.remoting.security.credentials import Credentials

INVISIBLE_MS: Final = 60_000
INVISIBLE_MS_MAX: Final = 12 * 3_600_000
WAIT_MS: Final = 20_000
WAIT_MS_MAX: Final = 3_600_000
BACKOFF_MS: Final = (
    10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000, 480_000, 540_000, 600_000,
    1_200_000, 1_800_000, 3_600_000, 7_200_000,
)  # fmt: skip
"""How long a message waits after its first, second … failure (RocketMQ DefaultMQPushConsumerImpl.popDelayLevel)."""


class SimpleConsumer(Lifecycle):
    """Receives messages of one topic for a time, and acknowledges each by itself.

    Any number of consumers of a group share a topic, also one with a single queue. A message that is received is
    invisible to the others for ``invisible_ms``. ``ack`` ends that for good; ``extend`` gives more time; after
    ``nack``, or at the end of the time, it is redelivered, with one ``attempt`` more. After the group's attempts it is
    a dead letter.

    At least once: a message whose time ends while it is worked on is received by somebody else as well. Its ``ack``
    raises ``ReceiptExpired`` then.

    Receives of many tasks share requests, acknowledgements of one turn of the loop too: a consumer for 64 workers costs
    little more than one for one.
    """

    def __init__(
        self,
        group: str,
        topic: str,
        namesrv: str | Sequence[str] = "",
        *,
        tags: str = ALL,
        sql: str | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        invisible_ms: int = INVISIBLE_MS,
        credentials: Credentials | None = None,
        tls: TLSArgument = None,
        telemetry: TelemetryArgument = None,
        instance: ClientInstance | None = None,
    ) -> None:
        """``start``: where a new group begins: with the oldest message, or (``"latest"``) as RocketMQ's consumers do,
        with the newest one, or the oldest of a young topic."""
        check_group_name(group)
        check_topic_name(topic)
        self.group = group
        self.topic = topic
        self.invisible_ms = _checked("invisible_ms", invisible_ms, 1, INVISIBLE_MS_MAX)
        self.instance = instance_for(instance, namesrv, credentials, tls, telemetry)
        if start not in ("earliest", "latest"):
            raise ConfigError("consumer refused", why=f"start={start!r}", hint="'earliest' or 'latest'")
        wire = PopWire(self.instance, group, topic, self._subscription(tags, sql))
        wire.from_newest = start == "latest"
        self._wire = wire
        self._lanes = PopLanes(self.instance, wire, topic)
        self._running = False

    def _subscription(self, tags: str, sql: str | None) -> Subscription:
        version = self.instance.clock.now_ms()
        if sql is None:
            return parse_subscription(self.topic, tags, version)
        if tags != ALL:
            raise SubscriptionIllegal("subscription refused", why="tags and sql are both given", hint="give one")
        return parse_sql(self.topic, sql, version)

    # ---- life

    async def start(self) -> None:
        """Start the client; a broker is connected at the first receive."""
        if self._running:
            return
        await self.instance.start()
        self.instance.add_consumer(self.group, self._describe, lambda: None)
        self._lanes = PopLanes(self.instance, self._wire, self.topic)
        self._running = True

    async def stop(self) -> None:
        """Stop. Receives that wait return nothing; unacknowledged messages are redelivered when their time is over."""
        if not self._running:
            return
        self._running = False
        await self._lanes.stop()
        await self.instance.remove_consumer(self.group)
        await self.instance.stop()

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_POP",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=[subscription_data(self._wire.subscription)],
        )

    # ---- receiving

    async def receive(self, *, wait_ms: int = WAIT_MS, invisible_ms: int | None = None) -> PoppedMessage | None:
        """Return one message, or None when none came in ``wait_ms``. Raises ``NoRoute``, the errors of connections,
        ``BrokerAnswerError``."""
        messages = await self.receive_batch(1, wait_ms=wait_ms, invisible_ms=invisible_ms)
        return messages[0] if messages else None

    async def receive_batch(
        self, max_messages: int = 32, *, wait_ms: int = WAIT_MS, invisible_ms: int | None = None
    ) -> list[PoppedMessage]:
        """Return up to ``max_messages``; wait up to ``wait_ms`` for the first. They need not be of one queue."""
        self._check_running()
        _checked("max_messages", max_messages, 1, NATIVE_MESSAGES_MAX)
        _checked("wait_ms", wait_ms, 0, WAIT_MS_MAX)
        return await self._lanes.receive(max_messages, self._invisible(invisible_ms), wait_ms)

    async def __aiter__(self) -> AsyncGenerator[PoppedMessage, None]:
        """Iterate for ever. Each message is renewed while the body of the loop runs, and acknowledged when the next one
        is asked for; leaving the loop has the last one redelivered at once."""
        while self._running:
            message = await self.receive()
            if message is None:
                continue
            renewal = _Renewal(self, message)
            try:
                yield message
            except BaseException:
                renewal.end()
                await self._give_back(message)
                raise
            renewal.end()
            if not message.is_settled:
                await self._ack_late(message)

    async def _ack_late(self, message: PoppedMessage) -> None:
        try:
            await self.ack(message)
        except ReceiptExpired as error:  # it is redelivered, and the loop's body has to bear that anyway
            self.instance.log.warning("message_redelivered", topic=self.topic, error=str(error))

    async def _give_back(self, message: PoppedMessage) -> None:
        if self._running and not message.is_settled:
            try:
                await self.nack(message, 0)
            except PocketMQError as error:  # then it comes when its time is over
                self.instance.log.info("message_not_given_back", topic=self.topic, error=str(error))

    # ---- settling

    async def ack(self, message: PoppedMessage) -> None:
        """Acknowledge a message. Raises ``ReceiptExpired`` if its time is over and it may come, or has come, again."""
        await self._settle(message, ACKNOWLEDGE)

    async def nack(self, message: PoppedMessage, delay_ms: int | None = None) -> None:
        """Have a message redelivered after ``delay_ms`` (0: at once; None: RocketMQ's times by the number of attempts).
        Raises ``ReceiptExpired``."""
        if delay_ms is None:
            delay_ms = BACKOFF_MS[min(message.attempt, len(BACKOFF_MS)) - 1]
        await self._settle(message, _checked("delay_ms", delay_ms, 0, INVISIBLE_MS_MAX))

    async def extend(self, message: PoppedMessage, invisible_ms: int | None = None) -> None:
        """Keep a message for ``invisible_ms`` from now (None: the consumer's). Raises ``ReceiptExpired``."""
        await self._settle(message, self._invisible(invisible_ms), is_final=False)

    async def ack_batch(self, messages: Iterable[PoppedMessage]) -> list[PoppedMessage]:
        """Acknowledge messages; return those whose time was over. Raises the errors of connections."""
        chosen = list(messages)
        self._check_running()
        futures = [self._lanes.settle(each, ACKNOWLEDGE) for each in chosen]
        results = await asyncio.gather(*futures)
        for message, is_done in zip(chosen, results, strict=True):
            message.is_settled |= is_done
        return [message for message, is_done in zip(chosen, results, strict=True) if not is_done]

    async def _settle(self, message: PoppedMessage, invisible_ms: int, *, is_final: bool = True) -> None:
        self._check_running()
        is_done = await self._lanes.settle(message, invisible_ms)
        if not is_done:
            raise ReceiptExpired(
                f"message {message.queue_offset} of {message.topic} is not this consumer's any more",
                why="its time is over, or it has a newer handle",
                hint="receive with a longer invisible_ms, extend in time, or iterate, which renews",
            )
        message.is_settled |= is_final

    def _invisible(self, invisible_ms: int | None) -> int:
        return (
            self.invisible_ms if invisible_ms is None else _checked("invisible_ms", invisible_ms, 1, INVISIBLE_MS_MAX)
        )

    def _check_running(self) -> None:
        if not self._running:
            raise NotStarted("consumer is not running", hint='use "async with", or await start() first')


class _Renewal:
    """Extends a message each half of its time, until ``end``."""

    def __init__(self, consumer: SimpleConsumer, message: PoppedMessage) -> None:
        self._consumer = consumer
        self._message = message
        self._timer: asyncio.TimerHandle | None = None
        self._arm()

    def _arm(self) -> None:
        left_ms = self._message.left_ms(self._consumer.instance.clock.monotonic_ns())
        self._timer = asyncio.get_running_loop().call_later(max(0.0, left_ms / 2000), self._renew)

    def _renew(self) -> None:
        if self._message.is_settled:
            return
        extending = asyncio.ensure_future(self._consumer.extend(self._message))
        extending.add_done_callback(self._renewed)

    def _renewed(self, extending: "asyncio.Future[None]") -> None:
        retrieve_exception(extending)
        error = None if extending.cancelled() else extending.exception()
        if error is not None:
            self._consumer.instance.log.warning("message_not_renewed", topic=self._message.topic, error=str(error))
        if self._timer is not None and not isinstance(error, ReceiptExpired):
            self._arm()

    def end(self) -> None:
        """Renew no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _checked(name: str, value: int, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ConfigError("argument refused", why=f"{name}={value!r}", hint=f"{low} to {high}")
    return value
