"""Settings of a push consumer under RocketMQ's names in snake_case.

Lives here: ``ConsumerOptions`` and its checks; ``ConsumerSettings``, the same as keyword arguments for type checkers
and editors.
"""

from dataclasses import dataclass, fields
from typing import Final, Literal, TypedDict

from pocketmq.common.errors import ConfigError

CLUSTERING: Final = "CLUSTERING"
BROADCASTING: Final = "BROADCASTING"
CONCURRENCY: Final = 20
"""DefaultMQPushConsumer.consumeThreadMin and Max."""
CONSUME_TIMEOUT_MS: Final = 15 * 60_000
"""DefaultMQPushConsumer.consumeTimeout."""
STOP_TIMEOUT_MS: Final = 10_000

_BOUNDS: Final = {
    "concurrency": (1, 10_000),
    "rebalance_interval_ms": (1, 3_600_000),
    "persist_interval_ms": (1, 3_600_000),
    "retry_delay_ms": (1, 3_600_000),
    "pull_interval_ms": (0, 65_535),
    "pull_batch_size": (1, 65_536),
    "consume_timeout_ms": (1, 7 * 86_400_000),
    "slow_handler_ms": (1, 7 * 86_400_000),
    "loop_block_ms": (0, 3_600_000),
    "max_reconsume_times": (-1, (1 << 31) - 1),
    "suspend_current_queue_time_millis": (10, 30_000),
    "lock_interval_ms": (10, 3_600_000),
    "lock_max_live_ms": (10, 3_600_000),
}


class ConsumerSettings(TypedDict, total=False):
    """The keyword arguments of ``PushConsumer`` that ``ConsumerOptions`` describes."""

    message_model: Literal["CLUSTERING", "BROADCASTING"]
    concurrency: int
    rebalance_interval_ms: int
    persist_interval_ms: int
    retry_delay_ms: int
    pull_interval_ms: int
    pull_batch_size: int
    consume_timeout_ms: int
    slow_handler_ms: int
    loop_block_ms: int
    max_reconsume_times: int
    suspend_current_queue_time_millis: int
    lock_interval_ms: int
    lock_max_live_ms: int


@dataclass(slots=True, frozen=True, kw_only=True)
class ConsumerOptions:
    """How one push consumer consumes. Times in ms."""

    message_model: str = CLUSTERING
    concurrency: int = CONCURRENCY
    """Calls of one handler at once."""
    rebalance_interval_ms: int = 20_000
    """RocketMQ: ``rocketmq.client.rebalance.waitInterval``."""
    persist_interval_ms: int = 5_000
    """ClientConfig.persistConsumerOffsetInterval."""
    retry_delay_ms: int = 5_000
    """How long a message that could not be sent back waits here (ConsumeMessageConcurrentlyService)."""
    pull_interval_ms: int = 0
    """A pause between the pulls of a queue that found messages (DefaultMQPushConsumer.pullInterval)."""
    pull_batch_size: int = 1024
    """Messages asked for at once; a RocketMQ broker gives 32 at most."""
    consume_timeout_ms: int = CONSUME_TIMEOUT_MS
    """A call that takes longer gives its messages back, in concurrent consumption."""
    slow_handler_ms: int = 60_000
    """Ours: a call that takes longer is logged, once."""
    loop_block_ms: int = 1_000
    """Ours: an event loop blocked for so long is logged, with the handler that blocks it; 0: not watched."""
    max_reconsume_times: int = -1
    """-1: 16, and no end in ordered consumption (DefaultMQPushConsumer.maxReconsumeTimes)."""
    suspend_current_queue_time_millis: int = 1_000
    """How long an ordered queue rests after a failure."""
    lock_interval_ms: int = 20_000
    """How often the locks of ordered queues are renewed (RocketMQ: ``rocketmq.client.rebalance.lockInterval``)."""
    lock_max_live_ms: int = 30_000
    """How long such a lock is trusted without renewal; at most three quarters of the broker's ``lock_max_live_time``
    (RocketMQ: ``rocketmq.client.rebalance.lockMaxLiveTime``)."""

    def __post_init__(self) -> None:
        if self.message_model not in (CLUSTERING, BROADCASTING):
            raise ConfigError(
                "consumer refused", why=f"message_model={self.message_model!r}", hint=f"{CLUSTERING} or {BROADCASTING}"
            )
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ConfigError("consumer refused", why=f"{name}={value!r} is not {low} to {high}")

    @staticmethod
    def names() -> frozenset[str]:
        """Return the names of all settings."""
        return frozenset(field.name for field in fields(ConsumerOptions))
