"""Sends that wait: for the disk (synchronous flush), or for a second server (synchronous replication)."""

from typing import ClassVar

from bench.comparison.case import Case, Scale, Variant
from bench.peers.base import Settings

SIZE_BYTES = 1024


class SyncFlush(Case):
    """The acknowledgement says that the message is on the disk."""

    durability = "sync"
    numbers: ClassVar[tuple[int, ...]] = (1, 64, 1024)
    name = "synced"
    title = "Synchronous flush, 1 KiB one by one"
    text = (
        "Closed loop; every acknowledgement follows a sync of the disk that covers the message. The disk's own rate of "
        "syncs is among the floors. `python -m bench sync_flush` measures PocketMQ's group commit in detail."
    )
    chart = "scaling"
    x_label = "messages in flight"

    def variants(self, scale: Scale) -> list[Variant]:
        """Each number in flight; the first one waits for new servers."""
        return [
            Variant(
                f"{in_flight} in flight",
                {"size_bytes": SIZE_BYTES, "in_flight": in_flight, "batch": 1},
                settings=Settings(self.durability),
                x=in_flight,
                prepare_s=5.0 if in_flight == 1 else 0.3,
            )
            for in_flight in self.numbers
        ]


class ReplicatedSends(SyncFlush):
    """The acknowledgement says that a second server has the message."""

    durability = "replicated"
    numbers: ClassVar[tuple[int, ...]] = (1, 64)
    name = "replicated"
    title = "Synchronous replication, 1 KiB one by one"
    text = (
        "Closed loop; every acknowledgement waits for a second server on the same machine, which does not sync its "
        "disk for it. `python -m bench replication` also measures how a new slave catches up."
    )
