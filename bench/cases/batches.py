"""Produce in batches, by the fastest call each library has; two batches on the way."""

from bench.comparison.case import Case, Scale, Variant
from bench.peers import Peer

SHAPES = ((100, 1000), (1024, 500), (65_536, 16))
ARROW = (100, 5000)


class Batches(Case):
    """Throughput where the caller has many messages at once; latencies are those of whole batches."""

    name = "batches"
    title = "Produce in batches"
    in_quick_run = True
    text = (
        "Two batches on the way, so that client and server work side by side. A batch is what the library offers: "
        "send_batch (PocketMQ), a collection (RocketMQ), a pipeline of XADD (Redis), create_batch (aiokafka), "
        "produce_batch with linger 5 ms (confluent-kafka), publish_async (NATS), publishes awaited together "
        "(RabbitMQ), one publish frame (streams). The Arrow row sends columns, which only PocketMQ takes."
    )

    def variants(self, scale: Scale) -> list[Variant]:
        """100 B, 1 KiB and, in a full run, 64 KiB; columns of 100 B."""
        rows = [
            Variant(f"{size:,} B, batches of {batch:,}", {"size_bytes": size, "batch": batch, "in_flight": 2})
            for size, batch in (SHAPES[:2] if scale.quick else SHAPES)
        ]
        size, batch = ARROW
        conditions = {"size_bytes": size, "batch": batch, "in_flight": 2, "how": "arrow"}
        return [*rows, Variant(f"{size} B, Arrow batches of {batch:,}", conditions)]

    def refuses(self, peer: Peer, variant: Variant) -> str:
        """Only PocketMQ takes columns."""
        if variant.conditions.get("how") == "arrow" and "arrow" not in peer.reads:
            return "its client takes no Arrow columns"
        return super().refuses(peer, variant)
