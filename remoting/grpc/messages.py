"""The messages of ``apache.rocketmq.v2``: every one, every field, its number and its type.

Source: the contract of RocketMQ's clients (apache/rocketmq-apis, ``definition.proto``, ``service.proto``). Tests
compare this table with the descriptors that RocketMQ's Python client brings.

Lives here: one class for each message.
"""

from typing import Annotated, ClassVar

from pocketmq.remoting.grpc.protobuf import Enum, Int32, Int64, Message


class Timestamp(Message):
    """A time since 1970 (``google.protobuf``)."""

    seconds: Annotated[Int64, 1] = 0
    nanos: Annotated[Int32, 2] = 0

    @classmethod
    def of_ms(cls, ms: int) -> "Timestamp":
        """Return the time ``ms`` after 1970."""
        return cls(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)

    @property
    def ms(self) -> int:
        """Milliseconds since 1970."""
        return self.seconds * 1000 + self.nanos // 1_000_000


class Duration(Message):
    """A span of time (``google.protobuf``)."""

    seconds: Annotated[Int64, 1] = 0
    nanos: Annotated[Int32, 2] = 0

    @classmethod
    def of_ms(cls, ms: int) -> "Duration":
        """Return a span of ``ms``."""
        return cls(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)

    @property
    def ms(self) -> int:
        """Its milliseconds."""
        return self.seconds * 1000 + self.nanos // 1_000_000


# ---- definition.proto ----------------------------------------------------------------------------------------------


class FilterExpression(Message):
    """Which messages of a topic a group wants."""

    type: Annotated[Enum, 1] = 0
    expression: Annotated[str, 2] = ""


class ExponentialBackoff(Message):
    """Waits that grow by a factor."""

    initial: Annotated[Duration | None, 1] = None
    max: Annotated[Duration | None, 2] = None
    multiplier: Annotated[float, 3] = 0.0


class CustomizedBackoff(Message):
    """Waits one by one; the last one counts for all that follow."""

    next: Annotated[list[Duration], 1] = []


class RetryPolicy(Message):
    """How often and when something is tried again."""

    oneofs: ClassVar = (("exponential_backoff", "customized_backoff"),)

    max_attempts: Annotated[Int32, 1] = 0
    exponential_backoff: Annotated[ExponentialBackoff | None, 2] = None
    customized_backoff: Annotated[CustomizedBackoff | None, 3] = None


class Resource(Message):
    """A topic or a group."""

    resource_namespace: Annotated[str, 1] = ""
    name: Annotated[str, 2] = ""


class SubscriptionEntry(Message):
    """One topic of a subscription."""

    topic: Annotated[Resource | None, 1] = None
    expression: Annotated[FilterExpression | None, 2] = None


class Address(Message):
    """Host and port."""

    host: Annotated[str, 1] = ""
    port: Annotated[Int32, 2] = 0


class Endpoints(Message):
    """Where something is reached."""

    scheme: Annotated[Enum, 1] = 0
    addresses: Annotated[list[Address], 2] = []


class Broker(Message):
    """One broker of a route."""

    name: Annotated[str, 1] = ""
    id: Annotated[Int32, 2] = 0
    endpoints: Annotated[Endpoints | None, 3] = None


class MessageQueue(Message):
    """One queue of a topic at one broker."""

    topic: Annotated[Resource | None, 1] = None
    id: Annotated[Int32, 2] = 0
    permission: Annotated[Enum, 3] = 0
    broker: Annotated[Broker | None, 4] = None
    accept_message_types: Annotated[list[Enum], 5] = []


class Digest(Message):
    """A checksum of a body."""

    type: Annotated[Enum, 1] = 0
    checksum: Annotated[str, 2] = ""


class DeadLetterQueue(Message):
    """Where a dead letter comes from."""

    topic: Annotated[str, 1] = ""
    message_id: Annotated[str, 2] = ""


class SystemProperties(Message):
    """What RocketMQ knows of a message."""

    tag: Annotated[str | None, 1] = None
    keys: Annotated[list[str], 2] = []
    message_id: Annotated[str, 3] = ""
    body_digest: Annotated[Digest | None, 4] = None
    body_encoding: Annotated[Enum, 5] = 0
    message_type: Annotated[Enum, 6] = 0
    born_timestamp: Annotated[Timestamp | None, 7] = None
    born_host: Annotated[str, 8] = ""
    store_timestamp: Annotated[Timestamp | None, 9] = None
    store_host: Annotated[str, 10] = ""
    delivery_timestamp: Annotated[Timestamp | None, 11] = None
    receipt_handle: Annotated[str | None, 12] = None
    queue_id: Annotated[Int32, 13] = 0
    queue_offset: Annotated[Int64 | None, 14] = None
    invisible_duration: Annotated[Duration | None, 15] = None
    delivery_attempt: Annotated[Int32 | None, 16] = None
    message_group: Annotated[str | None, 17] = None
    trace_context: Annotated[str | None, 18] = None
    orphaned_transaction_recovery_duration: Annotated[Duration | None, 19] = None
    dead_letter_queue: Annotated[DeadLetterQueue | None, 20] = None
    lite_topic: Annotated[str | None, 21] = None
    priority: Annotated[Int32 | None, 22] = None


class MessageOf(Message):
    """``Message`` of the contract: one message of a topic."""

    topic: Annotated[Resource | None, 1] = None
    user_properties: Annotated[dict[str, str], 2] = {}
    system_properties: Annotated[SystemProperties | None, 3] = None
    body: Annotated[bytes, 4] = b""


class Assignment(Message):
    """A queue that a client may read."""

    message_queue: Annotated[MessageQueue | None, 1] = None


class Status(Message):
    """How a call ended: a code of RocketMQ's, and a text for people."""

    code: Annotated[Enum, 1] = 0
    message: Annotated[str, 2] = ""


class UA(Message):
    """What a client is."""

    language: Annotated[Enum, 1] = 0
    version: Annotated[str, 2] = ""
    platform: Annotated[str, 3] = ""
    hostname: Annotated[str, 4] = ""


class Publishing(Message):
    """Settings of a producer."""

    topics: Annotated[list[Resource], 1] = []
    max_body_size: Annotated[Int32, 2] = 0
    validate_message_type: Annotated[bool, 3] = False


class Subscription(Message):
    """Settings of a consumer."""

    group: Annotated[Resource | None, 1] = None
    subscriptions: Annotated[list[SubscriptionEntry], 2] = []
    fifo: Annotated[bool | None, 3] = None
    receive_batch_size: Annotated[Int32 | None, 4] = None
    long_polling_timeout: Annotated[Duration | None, 5] = None
    lite_subscription_quota: Annotated[Int32 | None, 6] = None
    max_lite_topic_size: Annotated[Int32 | None, 7] = None


class Metric(Message):
    """Whether a client sends its figures, and where to."""

    on: Annotated[bool, 1] = False
    endpoints: Annotated[Endpoints | None, 2] = None


class Settings(Message):
    """What a client says of itself, and what it is told."""

    oneofs: ClassVar = (("publishing", "subscription"),)

    client_type: Annotated[Enum | None, 1] = None
    access_point: Annotated[Endpoints | None, 2] = None
    backoff_policy: Annotated[RetryPolicy | None, 3] = None
    request_timeout: Annotated[Duration | None, 4] = None
    publishing: Annotated[Publishing | None, 5] = None
    subscription: Annotated[Subscription | None, 6] = None
    user_agent: Annotated[UA | None, 7] = None
    metric: Annotated[Metric | None, 8] = None


# ---- service.proto -------------------------------------------------------------------------------------------------


class QueryRouteRequest(Message):
    """Where are the queues of a topic?"""

    topic: Annotated[Resource | None, 1] = None
    endpoints: Annotated[Endpoints | None, 2] = None


class QueryRouteResponse(Message):
    """The queues of a topic."""

    status: Annotated[Status | None, 1] = None
    message_queues: Annotated[list[MessageQueue], 2] = []


class SendMessageRequest(Message):
    """Messages of one topic."""

    messages: Annotated[list[MessageOf], 1] = []


class SendResultEntry(Message):
    """How the send of one message ended."""

    status: Annotated[Status | None, 1] = None
    message_id: Annotated[str, 2] = ""
    transaction_id: Annotated[str, 3] = ""
    offset: Annotated[Int64, 4] = 0
    recall_handle: Annotated[str, 5] = ""


class SendMessageResponse(Message):
    """How the sends ended, one entry a message."""

    status: Annotated[Status | None, 1] = None
    entries: Annotated[list[SendResultEntry], 2] = []


class QueryAssignmentRequest(Message):
    """Which queues may this client read?"""

    topic: Annotated[Resource | None, 1] = None
    group: Annotated[Resource | None, 2] = None
    endpoints: Annotated[Endpoints | None, 3] = None


class QueryAssignmentResponse(Message):
    """The queues that a client may read."""

    status: Annotated[Status | None, 1] = None
    assignments: Annotated[list[Assignment], 2] = []


class ReceiveMessageRequest(Message):
    """Messages for a while."""

    group: Annotated[Resource | None, 1] = None
    message_queue: Annotated[MessageQueue | None, 2] = None
    filter_expression: Annotated[FilterExpression | None, 3] = None
    batch_size: Annotated[Int32, 4] = 0
    invisible_duration: Annotated[Duration | None, 5] = None
    auto_renew: Annotated[bool, 6] = False
    long_polling_timeout: Annotated[Duration | None, 7] = None
    attempt_id: Annotated[str | None, 8] = None


class ReceiveMessageResponse(Message):
    """A part of the answer: first the status, then messages, then when they were handed out."""

    oneofs: ClassVar = (("status", "message", "delivery_timestamp"),)

    status: Annotated[Status | None, 1] = None
    message: Annotated[MessageOf | None, 2] = None
    delivery_timestamp: Annotated[Timestamp | None, 3] = None


class AckMessageEntry(Message):
    """One message that is done."""

    message_id: Annotated[str, 1] = ""
    receipt_handle: Annotated[str, 2] = ""
    lite_topic: Annotated[str | None, 3] = None


class AckMessageRequest(Message):
    """Messages that are done."""

    group: Annotated[Resource | None, 1] = None
    topic: Annotated[Resource | None, 2] = None
    entries: Annotated[list[AckMessageEntry], 3] = []


class AckMessageResultEntry(Message):
    """How the acknowledgement of one message ended."""

    message_id: Annotated[str, 1] = ""
    receipt_handle: Annotated[str, 2] = ""
    status: Annotated[Status | None, 3] = None


class AckMessageResponse(Message):
    """How acknowledgements ended."""

    status: Annotated[Status | None, 1] = None
    entries: Annotated[list[AckMessageResultEntry], 2] = []


class ForwardMessageToDeadLetterQueueRequest(Message):
    """A message that a client of an ordered group gives up."""

    group: Annotated[Resource | None, 1] = None
    topic: Annotated[Resource | None, 2] = None
    receipt_handle: Annotated[str, 3] = ""
    message_id: Annotated[str, 4] = ""
    delivery_attempt: Annotated[Int32, 5] = 0
    max_delivery_attempts: Annotated[Int32, 6] = 0
    lite_topic: Annotated[str | None, 7] = None


class ForwardMessageToDeadLetterQueueResponse(Message):
    """Whether it is a dead letter now."""

    status: Annotated[Status | None, 1] = None


class HeartbeatRequest(Message):
    """I am here."""

    group: Annotated[Resource | None, 1] = None
    client_type: Annotated[Enum, 2] = 0


class HeartbeatResponse(Message):
    """Noted."""

    status: Annotated[Status | None, 1] = None


class EndTransactionRequest(Message):
    """The decision on a transaction."""

    topic: Annotated[Resource | None, 1] = None
    message_id: Annotated[str, 2] = ""
    transaction_id: Annotated[str, 3] = ""
    resolution: Annotated[Enum, 4] = 0
    source: Annotated[Enum, 5] = 0
    trace_context: Annotated[str, 6] = ""


class EndTransactionResponse(Message):
    """Whether it is decided now."""

    status: Annotated[Status | None, 1] = None


class PrintThreadStackTraceCommand(Message):
    """Where are your threads?"""

    nonce: Annotated[str, 1] = ""


class ReconnectEndpointsCommand(Message):
    """Connect again."""

    nonce: Annotated[str, 1] = ""


class ThreadStackTrace(Message):
    """Where a client's threads are."""

    nonce: Annotated[str, 1] = ""
    thread_stack_trace: Annotated[str | None, 2] = None


class VerifyMessageCommand(Message):
    """Consume this message, and say how it went."""

    nonce: Annotated[str, 1] = ""
    message: Annotated[MessageOf | None, 2] = None


class VerifyMessageResult(Message):
    """How it went."""

    nonce: Annotated[str, 1] = ""


class RecoverOrphanedTransactionCommand(Message):
    """How is this transaction to end?"""

    message: Annotated[MessageOf | None, 1] = None
    transaction_id: Annotated[str, 2] = ""


class NotifyUnsubscribeLiteCommand(Message):
    """A lite topic is no longer subscribed (RocketMQ 5.4)."""

    lite_topic: Annotated[str, 1] = ""


class TelemetryCommand(Message):
    """What client and server tell each other."""

    oneofs: ClassVar = (
        (
            "settings",
            "thread_stack_trace",
            "verify_message_result",
            "recover_orphaned_transaction_command",
            "print_thread_stack_trace_command",
            "verify_message_command",
            "reconnect_endpoints_command",
            "notify_unsubscribe_lite_command",
        ),
    )

    status: Annotated[Status | None, 1] = None
    settings: Annotated[Settings | None, 2] = None
    thread_stack_trace: Annotated[ThreadStackTrace | None, 3] = None
    verify_message_result: Annotated[VerifyMessageResult | None, 4] = None
    recover_orphaned_transaction_command: Annotated[RecoverOrphanedTransactionCommand | None, 5] = None
    print_thread_stack_trace_command: Annotated[PrintThreadStackTraceCommand | None, 6] = None
    verify_message_command: Annotated[VerifyMessageCommand | None, 7] = None
    reconnect_endpoints_command: Annotated[ReconnectEndpointsCommand | None, 8] = None
    notify_unsubscribe_lite_command: Annotated[NotifyUnsubscribeLiteCommand | None, 9] = None


class NotifyClientTerminationRequest(Message):
    """I leave."""

    group: Annotated[Resource | None, 1] = None


class NotifyClientTerminationResponse(Message):
    """Noted."""

    status: Annotated[Status | None, 1] = None


class ChangeInvisibleDurationRequest(Message):
    """Another time until a message is handed out again."""

    group: Annotated[Resource | None, 1] = None
    topic: Annotated[Resource | None, 2] = None
    receipt_handle: Annotated[str, 3] = ""
    invisible_duration: Annotated[Duration | None, 4] = None
    message_id: Annotated[str, 5] = ""
    lite_topic: Annotated[str | None, 6] = None
    suspend: Annotated[bool | None, 7] = None


class ChangeInvisibleDurationResponse(Message):
    """The handle that counts from now on."""

    status: Annotated[Status | None, 1] = None
    receipt_handle: Annotated[str, 2] = ""


class RecallMessageRequest(Message):
    """Take a delayed message back."""

    topic: Annotated[Resource | None, 1] = None
    recall_handle: Annotated[str, 2] = ""


class RecallMessageResponse(Message):
    """The message that was taken back."""

    status: Annotated[Status | None, 1] = None
    message_id: Annotated[str, 2] = ""
