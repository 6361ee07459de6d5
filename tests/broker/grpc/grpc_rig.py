"""A real broker with its gRPC listener, and calls to it in a few words.

Lives here: ``Rig``, ``message``, ``topic``.
"""

from typing import Any

from pocketmq.broker.app import BrokerApp
from pocketmq.remoting.grpc import messages as m
from pocketmq.remoting.grpc.codes import ClientType
from tests.remoting.grpc.grpc_client import GrpcClient, Stream

HOUR_MS = 3_600_000


def topic(name: str = "T") -> m.Resource:
    return m.Resource(name=name)


def message(body: bytes = b"hello", *, to: str = "T", message_id: str = "", **system: Any) -> m.MessageOf:
    """A message; ``properties`` are the user's, all else RocketMQ's."""
    properties = system.pop("properties", {})
    number = message.count = getattr(message, "count", 0) + 1  # type: ignore[attr-defined]
    fields = {"message_id": message_id or f"01{number:032X}", "message_type": 1, **system}
    return m.MessageOf(
        topic=topic(to), user_properties=properties, system_properties=m.SystemProperties(**fields), body=body
    )


class Rig:
    """One client of one broker."""

    def __init__(self, app: BrokerApp, client: GrpcClient) -> None:
        self.app = app
        self.client = client
        self.telemetry: Stream

    @classmethod
    async def connect(cls, app: BrokerApp, client_id: str = "c1", **metadata: Any) -> "Rig":
        return cls(app, await GrpcClient.connect(app.grpc_port, client_id=client_id, **metadata))

    async def send(self, *messages: m.MessageOf) -> m.SendMessageResponse:
        return await self.client.call(
            "SendMessage", m.SendMessageRequest(messages=list(messages)), m.SendMessageResponse
        )

    async def sent(self, body: bytes = b"hello", **fields: Any) -> m.SendResultEntry:
        """Send one message, which must be stored."""
        answer = await self.send(message(body, **fields))
        assert answer.status is not None
        assert answer.status.code == 20000, answer.status
        return answer.entries[0]

    async def settle(self, settings: m.Settings) -> m.TelemetryCommand:
        """Send settings on a stream of telemetry; return the answer."""
        self.telemetry = self.client.open("Telemetry")
        self.telemetry.send(m.TelemetryCommand(settings=settings))
        return await self.telemetry.next(m.TelemetryCommand)

    async def produces(self, *topics: str) -> m.TelemetryCommand:
        publishing = m.Publishing(topics=[topic(each) for each in topics])
        return await self.settle(m.Settings(client_type=ClientType.PRODUCER, publishing=publishing))

    async def consumes(
        self, group: str = "g", name: str = "T", *, kind: ClientType = ClientType.SIMPLE_CONSUMER
    ) -> m.TelemetryCommand:
        entry = m.SubscriptionEntry(topic=topic(name), expression=m.FilterExpression(type=1, expression="*"))
        subscription = m.Subscription(group=m.Resource(name=group), subscriptions=[entry])
        return await self.settle(m.Settings(client_type=kind, subscription=subscription))

    async def receive(
        self,
        group: str = "g",
        name: str = "T",
        *,
        queue_id: int = -1,
        count: int = 32,
        invisible_ms: int = HOUR_MS,
        deadline: str = "30S",
        filtered: m.FilterExpression | None = None,
        **fields: Any,
    ) -> tuple[m.Status, list[m.MessageOf]]:
        """Make one call for messages; return the status and what came."""
        request = m.ReceiveMessageRequest(
            group=m.Resource(name=group),
            message_queue=m.MessageQueue(topic=topic(name), id=queue_id),
            filter_expression=filtered,
            batch_size=count,
            invisible_duration=None if "auto_renew" in fields else m.Duration.of_ms(invisible_ms),
            long_polling_timeout=m.Duration.of_ms(5_000),
            **fields,
        )
        stream = self.client.open("ReceiveMessage", grpc_timeout=deadline)
        stream.send(request, end=True)
        first = await stream.next(m.ReceiveMessageResponse)
        assert first.status is not None
        found: list[m.MessageOf] = []
        if first.status.code == 20000:
            while True:
                part = await stream.next(m.ReceiveMessageResponse)
                if part.message is None:
                    assert part.delivery_timestamp is not None
                    break
                found.append(part.message)
        await stream.done()
        assert stream.status == 0, stream.trailers
        return first.status, found

    async def ack(self, *messages: m.MessageOf, group: str = "g", name: str = "T") -> m.AckMessageResponse:
        entries = [m.AckMessageEntry(message_id=id_of(each), receipt_handle=handle_of(each)) for each in messages]
        request = m.AckMessageRequest(group=m.Resource(name=group), topic=topic(name), entries=entries)
        return await self.client.call("AckMessage", request, m.AckMessageResponse)

    async def change(
        self, of: m.MessageOf, invisible_ms: int, *, handle: str = "", group: str = "g", name: str = "T"
    ) -> m.ChangeInvisibleDurationResponse:
        request = m.ChangeInvisibleDurationRequest(
            group=m.Resource(name=group),
            topic=topic(name),
            receipt_handle=handle or handle_of(of),
            invisible_duration=m.Duration.of_ms(invisible_ms),
            message_id=id_of(of),
        )
        return await self.client.call("ChangeInvisibleDuration", request, m.ChangeInvisibleDurationResponse)

    async def end(self, message_id: str, resolution: int, *, name: str = "T", source: int = 1) -> m.Status:
        request = m.EndTransactionRequest(
            topic=topic(name),
            message_id=message_id,
            transaction_id=message_id,
            resolution=resolution,
            source=source,
        )
        answer = await self.client.call("EndTransaction", request, m.EndTransactionResponse)
        assert answer.status is not None
        return answer.status


def system_of(message: m.MessageOf) -> m.SystemProperties:
    assert message.system_properties is not None
    return message.system_properties


def id_of(message: m.MessageOf) -> str:
    return system_of(message).message_id


def handle_of(message: m.MessageOf) -> str:
    return system_of(message).receipt_handle or ""
