"""Names of OpenTelemetry's semantic conventions for messaging, version 1.44 (status: development).

Lives here: attributes, operations, metrics; ours, under ``pocketmq.``, where the conventions have none. The conventions
are being changed: this is the only module to touch.
"""

from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
SYSTEM_NAME: Final = "rocketmq"
"""Value of ``messaging.system``: PocketMQ speaks RocketMQ's protocol, and the conventions know RocketMQ."""

SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
CONSUMER_GROUP: Final = "messaging.consumer.group.name"
CLIENT_ID: Final = "messaging.client.id"
BATCH_COUNT: Final = "messaging.batch.message_count"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
BODY_SIZE: Final = "messaging.message.body.size"
MESSAGE_TYPE: Final = "messaging.rocketmq.message.type"
MESSAGE_TAG: Final = "messaging.rocketmq.message.tag"
MESSAGE_KEYS: Final = "messaging.rocketmq.message.keys"
MESSAGE_GROUP: Final = "messaging.rocketmq.message.group"
DELAY_LEVEL: Final = "messaging.rocketmq.message.delay_time_level"
DELIVERY_TIMESTAMP: Final = "messaging.rocketmq.message.delivery_timestamp"
CONSUMPTION_MODEL: Final = "messaging.rocketmq.consumption_model"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"
EXCEPTION: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
OTHER_ERROR: Final = "_OTHER"

QUEUE_OFFSET: Final = "pocketmq.message.queue_offset"
RECONSUME_TIMES: Final = "pocketmq.message.reconsume_times"
SEND_STATUS: Final = "pocketmq.send.status"
"""RocketMQ's SendStatus, where it is not SEND_OK."""
SEND_ATTEMPTS: Final = "pocketmq.send.attempts"
RESEND: Final = "pocketmq.send.resend"
"""True for what the durable retry sends again."""
LATER_COUNT: Final = "pocketmq.process.later_count"
"""How many messages of a batch are to be tried again."""

ATTEMPT: Final = "pocketmq.send.attempt"
"""The event of an attempt that failed, and its attributes."""
ATTEMPT_BROKER: Final = "pocketmq.attempt.broker"
ATTEMPT_PHASE: Final = "pocketmq.attempt.phase"
ATTEMPT_CAUSE: Final = "pocketmq.attempt.cause"
ATTEMPT_STORED: Final = "pocketmq.attempt.stored"
ATTEMPT_MS: Final = "pocketmq.attempt.elapsed_ms"

SEND: Final = ("send", "send")
"""An operation: its name and its type."""
RECEIVE: Final = ("receive", "receive")
PROCESS: Final = ("process", "process")
CHECK: Final = ("check", "process")
ACK: Final = ("ack", "settle")
NACK: Final = ("nack", "settle")
DEAD_LETTER: Final = ("dead_letter", "settle")
COMMIT: Final = ("commit", "settle")
ROLLBACK: Final = ("rollback", "settle")

OPERATION_DURATION: Final = "messaging.client.operation.duration"
SENT_MESSAGES: Final = "messaging.client.sent.messages"
CONSUMED_MESSAGES: Final = "messaging.client.consumed.messages"
PROCESS_DURATION: Final = "messaging.process.duration"
DURATION_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The advised bounds of both durations."""
