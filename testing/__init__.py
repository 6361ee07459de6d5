"""The real broker, in-process, for tests: ``from pocketmq.testing import PocketBroker``.

The name is loaded on first use: pytest imports this package in every run of a project that has PocketMQ installed.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pocketmq.testing.broker import PocketBroker
    from pocketmq.testing.idle import NotIdle

__all__ = ["NotIdle", "PocketBroker"]


def __getattr__(name: str) -> Any:
    if name == "PocketBroker":
        from pocketmq.testing.broker import PocketBroker

        return PocketBroker
    if name == "NotIdle":
        from pocketmq.testing.idle import NotIdle

        return NotIdle
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
