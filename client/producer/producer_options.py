"""The settings of a producer, with RocketMQ's names and defaults where it has them.

Lives here: ``ProducerOptions``, checked at construction, and ``ProducerSettings``.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypedDict

from pocketmq.client.message.validation import MAX_MESSAGE_SIZE
from pocketmq.client.sender.fault_items import LATENCY_TABLE_5_3, LatencyTable
from pocketmq.client.sender.in_flight import ASYNC_PERMITS, IN_FLIGHT_BYTES_MAX, ONEWAY_PERMITS
from pocketmq.client.sender.retry_budget import FLOOR, RATIO
from pocketmq.common.body_codec import CompressionType
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pocketmq.client.producer.stages import SendStage

SEND_TIMEOUT_MS_MAX = 24 * 3600 * 1000

_RANGES: dict[str, tuple[float, float]] = {
    "send_msg_timeout_ms": (1, SEND_TIMEOUT_MS_MAX),
    "retry_times_when_send_failed": (0, 1000),
    "retry_times_when_send_async_failed": (0, 1000),
    "linger_ms": (0, 10_000),
    "max_message_size": (1, 1 << 30),
    "in_flight_bytes_max": (1, 1 << 40),
    "in_flight_sends_max": (1, 1 << 31),
    "in_flight_oneways_max": (1, 1 << 31),
    "send_msg_max_timeout_per_request_ms": (-1, SEND_TIMEOUT_MS_MAX),
    "retry_budget_ratio": (0, 1000),
    "retry_budget_floor": (0, 1_000_000),
}
_MAY_BE_NONE = frozenset({"send_msg_max_timeout_per_request_ms", "retry_budget_ratio"})
_FRACTIONS = frozenset({"linger_ms", "retry_budget_ratio"})


class ProducerSettings(TypedDict, total=False):
    """The keyword arguments of ``Producer`` but its instance, for type checkers and editors."""

    send_msg_timeout_ms: int
    retry_times_when_send_failed: int
    retry_times_when_send_async_failed: int
    send_msg_max_timeout_per_request_ms: int | None
    retry_response_codes: Collection[int] | None
    retry_another_broker_when_not_store_ok: bool
    send_latency_fault_enable: bool
    latency_table: LatencyTable
    retry_budget_ratio: float | None
    retry_budget_floor: int
    linger_ms: float
    max_message_size: int
    in_flight_bytes_max: int
    in_flight_sends_max: int
    in_flight_oneways_max: int
    durable_retry: "SendStage | None"
    compress_type: CompressionType | str | None
    compress_level: int
    compress_msg_body_over_howmuch: int
    enable_message_trace: bool
    trace_topic: str
    stages: "Sequence[SendStage]"


@dataclass(slots=True, frozen=True, kw_only=True)
class ProducerOptions:
    """Times in ms. Raises ``ConfigError``, which names the setting.

    ``send_msg_max_timeout_per_request_ms``: None chooses, -1 is off (RocketMQ 5.3's default).
    ``retry_response_codes``: None is RocketMQ 5.3's set. ``retry_budget_ratio``: None is no budget, as in RocketMQ.
    """

    send_msg_timeout_ms: int = 3000
    retry_times_when_send_failed: int = 2
    retry_times_when_send_async_failed: int = 2
    send_msg_max_timeout_per_request_ms: int | None = None
    retry_response_codes: Collection[int] | None = None
    retry_another_broker_when_not_store_ok: bool = False
    send_latency_fault_enable: bool = False
    latency_table: LatencyTable = LATENCY_TABLE_5_3
    retry_budget_ratio: float | None = RATIO
    retry_budget_floor: int = FLOOR
    linger_ms: float = 0
    max_message_size: int = MAX_MESSAGE_SIZE
    in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX
    in_flight_sends_max: int = ASYNC_PERMITS
    in_flight_oneways_max: int = ONEWAY_PERMITS

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _RANGES:
                if value is not None or field.name not in _MAY_BE_NONE:
                    check_range(field.name, value, *_RANGES[field.name], whole=field.name not in _FRACTIONS)
            elif field.type in ("bool", bool) and not isinstance(value, bool):
                raise ConfigError("producer refused", why=f"{field.name}={value!r} is not True or False")
        if self.send_msg_max_timeout_per_request_ms == 0:
            raise ConfigError(
                "producer refused",
                why="send_msg_max_timeout_per_request_ms=0 leaves no time for an attempt",
                hint="-1 switches it off, None lets the producer choose",
            )
        if not isinstance(self.latency_table, LatencyTable):
            raise ConfigError("producer refused", why=f"latency_table={self.latency_table!r} is no LatencyTable")
        codes = self.retry_response_codes
        if codes is not None:
            for code in codes:
                if isinstance(code, bool) or not isinstance(code, int):
                    raise ConfigError("producer refused", why=f"retry_response_codes holds {code!r}, which is no code")


def check_range(name: str, value: object, low: float, high: float, *, whole: bool = False) -> None:
    """Raise ``ConfigError`` unless ``value`` is a number from ``low`` to ``high``."""
    is_bad_kind = isinstance(value, bool) or (whole and isinstance(value, float))
    if is_bad_kind or not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError("producer refused", why=f"{name}={value!r} is not from {low} to {high}")
