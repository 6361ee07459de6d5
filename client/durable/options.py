"""The settings of the durable retry.

Lives here: ``RetryOptions``, checked at construction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pocketmq.client.durable.entry import KeptMessage
from pocketmq.client.durable.ownership import StoreWait
from pocketmq.client.durable.policy import RetryRule
from pocketmq.client.message.receipts import Receipt
from pocketmq.common.errors import ConfigError

OnDelivered = Callable[[KeptMessage, Receipt], object]
"""Called in the event loop when a message from the store is delivered."""
OnGivenUp = Callable[[KeptMessage, str], bool | None]
"""Called in the event loop with a message that is no longer resent, and why. True: the callee took it, and the store
forgets it; anything else: the store keeps it as given up."""
OnStoreWait = Callable[[StoreWait], object]
"""Called in the event loop when a wait for the store's owner begins, and about each second."""

_RANGES = {
    "count_max": (1, 1 << 40),
    "size_bytes_max": (1, 1 << 50),
    "keys_max": (1, 10_000_000),
    "timeout_ms": (1, 600_000),
    "store_timeout_ms": (1, 600_000),
    "lease_ms": (300, 3_600_000),
    "reopen_ms": (1, 3_600_000),
    "resend_bytes_max": (1, 1 << 32),
    "resend_sections_max": (1, 1_000),
}


@dataclass(slots=True, frozen=True, kw_only=True)
class RetryOptions:
    """Times in ms. Raises ``ConfigError``, which names the setting.

    ``order_by_key``: messages with a sharding key (or a selector) keep their order, waiting ones included.
    ``required``: the producer does not start without its store; always so with ``order_by_key``, since the waiting
    messages decide which ones may be sent. ``count_max``, ``size_bytes_max``, ``keys_max``: limits of the store,
    given-up messages included. ``timeout_ms`` bounds one call to a server, ``store_timeout_ms`` how long a caller waits
    for the store; a start that requires its store also waits for the lease of a dead owner (``lease_ms`` of that
    owner).
    """

    order_by_key: bool = False
    rules: Sequence[RetryRule] = field(default_factory=lambda: (RetryRule(),))
    count_max: int = 1_000_000
    size_bytes_max: int = 4 << 30
    keys_max: int = 100_000
    sync: bool = False
    required: bool = False
    timeout_ms: int = 3_000
    store_timeout_ms: int = 10_000
    lease_ms: int = 10_000
    reopen_ms: int = 2_000
    resend_bytes_max: int = 8 << 20
    resend_sections_max: int = 8
    on_delivered: OnDelivered | None = None
    on_given_up: OnGivenUp | None = None
    on_store_wait: OnStoreWait | None = None

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ConfigError(
                    "durable retry refused", why=f"{name}={value!r}", hint=f"a whole number from {low} to {high}"
                )
        if not all(isinstance(rule, RetryRule) for rule in self.rules):
            raise ConfigError("durable retry refused", why="rules holds something else than RetryRule")
