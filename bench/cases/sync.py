"""Sends that wait: for the disk (synchronous flush), or for a second server (synchronous replication)."""

from bench.comparison.case import Case, Scale, Variant
from bench.peers.base import Settings

SIZE_BYTES = 1024


def _variants(durability: str, numbers: tuple[int, ...]) -> list[Variant]:
    return [
        Variant(
            f"{in_flight} in flight",
            {"size_bytes": SIZE_BYTES, "in_flight": in_flight, "batch": 1},
            settings=Settings(durability),
            x=in_flight,
            prepare_s=5.0 if in_flight == numbers[0] else 0.3,
        )
        for in_flight in numbers
    ]


class SyncFlush(Case):
    """The acknowledgement says that the message is on the disk."""

    name = "synced"
    title = "Synchronous flush, 1 KiB one by one"
    text = (
        "Closed loop; every acknowledgement follows a sync of the disk that covers the message. The disk's own rate of "
        "syncs is among the floors. `python -m bench sync_flush` measures PocketMQ's group commit in detail."
    )
    chart = "scaling"
    x_label = "messages in flight"

    def variants(self, scale: Scale) -> list[Variant]:
        """1, 64 and 1,024 in flight."""
        return _variants("sync", (1, 64, 1024))


class ReplicatedSends(SyncFlush):
    """The acknowledgement says that a second server has the message."""

    name = "replicated"
    title = "Synchronous replication, 1 KiB one by one"
    text = (
        "Closed loop; every acknowledgement waits for a second server on the same machine, which does not sync its "
        "disk for it. `python -m bench replication` also measures how a new slave catches up."
    )

    def variants(self, scale: Scale) -> list[Variant]:
        """1 and 64 in flight."""
        return _variants("replicated", (1, 64))
