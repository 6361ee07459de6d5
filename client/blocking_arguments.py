"""The keyword arguments of the blocking faces, for type checkers and editors.

Lives here: one ``TypedDict`` for each face, with the keyword arguments of the class that it wraps.
"""

from pathlib import Path
from typing import Literal, TypedDict

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.connection.rebalance import AllocateStrategy
from pocketmq.client.handlers.consume_result import FailurePolicy
from pocketmq.client.handlers.process_queue import ProcessLimits
from pocketmq.client.producer.producer_options import ProducerSettings
from pocketmq.client.pull.offsets import ConsumeFromWhere, FirstStart
from pocketmq.client.push.consumer_options import ConsumerSettings
from pocketmq.client.telemetry.switch import TelemetryArgument
from pocketmq.common.value_codec import BodyCodec
from pocketmq.remoting.security.client_security import TLSArgument
from pocketmq.remoting.security.credentials import Credentials


class ProducerArguments(ProducerSettings, total=False):
    """Those of ``pocketmq.client.Producer``."""

    credentials: Credentials | None
    tls: TLSArgument
    telemetry: TelemetryArgument
    instance: ClientInstance | None


class TransactionProducerArguments(ProducerArguments, total=False):
    """Those of ``pocketmq.client.TransactionProducer`` but ``check``."""

    check_concurrency: int
    check_timeout_ms: int


class PullConsumerArguments(TypedDict, total=False):
    """Those of ``pocketmq.client.PullConsumer``."""

    start: FirstStart | None
    consume_from_where: ConsumeFromWhere | None
    pull_bytes_max: int
    check_crc: bool
    credentials: Credentials | None
    tls: TLSArgument
    telemetry: TelemetryArgument
    instance: ClientInstance | None


class SimpleConsumerArguments(TypedDict, total=False):
    """Those of ``pocketmq.client.SimpleConsumer``."""

    tags: str
    sql: str | None
    start: Literal["earliest", "latest"]
    invisible_ms: int
    credentials: Credentials | None
    tls: TLSArgument
    telemetry: TelemetryArgument
    instance: ClientInstance | None


class PushConsumerArguments(ConsumerSettings, total=False):
    """Those of ``pocketmq.client.PushConsumer``."""

    start: FirstStart | None
    consume_from_where: ConsumeFromWhere | None
    consume_timestamp_ms: int | None
    allocate: str | AllocateStrategy
    limits: ProcessLimits | None
    offset_store_dir: str | Path | None
    failure_policy: FailurePolicy | None
    enable_message_trace: bool
    trace_topic: str
    codec: BodyCodec
    credentials: Credentials | None
    tls: TLSArgument
    telemetry: TelemetryArgument
    instance: ClientInstance | None
