"""A send on its way through one append.

Lives here: ``PlannedSend``, one request with its sections in a group; ``SendBatch``, a run of requests that were
checked together; ``Appended``, the result of the append as the answers need it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pocketmq.broker.request.request_task import Buffers, Task
from pocketmq.common.record_group import RecordGroup
from pocketmq.store.append_result import AppendResult


@dataclass(slots=True)
class Appended:
    """The result of storing a group. ``code`` (0, 10, 11 or 12) and ``remark`` hold for each of its sections."""

    code: int
    remark: str
    store_timestamp: int
    first_queue_offsets: list[int]
    runs: list[list[tuple[int, int]]]
    """Per section: (physical offset of the first record, records) of each contiguous run in the log."""


class PlannedSend(Protocol):
    """One request that has sections in a group."""

    task: Task
    wait: bool
    """Whether the sender waits for the flush (RocketMQ's WAIT property)."""

    def shift(self, sections: int) -> None:
        """Move this request's sections behind ``sections`` sections of other runs."""
        ...

    def encode(self, appended: Appended) -> Buffers:
        """Return the response."""
        ...


@dataclass(slots=True)
class SendBatch:
    """Requests in order, and the group of all their records."""

    sends: list[PlannedSend]
    group: RecordGroup
    stored: Callable[[AppendResult], None] | None = None
    """Called when the group is in the log, before any answer."""
