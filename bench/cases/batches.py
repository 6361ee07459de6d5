"""Produce in batches, by the fastest call each library has; two batches on the way."""

from typing import Any

from bench.comparison.case import BYTES_MAX, Bench, Case, Scale, Variant, figures
from bench.peers import Peer

SHAPES = ((100, 1000), (1024, 500), (65_536, 16))
ARROW = (100, 5000)


class Batches(Case):
    """Throughput where the caller has many messages at once."""

    name = "batches"
    title = "Produce in batches"
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

    def measure(self, bench: Bench, peer: Peer, variant: Variant) -> dict[str, Any]:
        """Run one round; latencies are those of whole batches."""
        job = {"op": "closed", "topics": [bench.topic(self, peer, variant)], **variant.conditions}
        answer = bench.ask(peer, variant, {**job, "seconds": bench.scale.seconds, "bytes_max": BYTES_MAX})
        return figures(answer, int(variant.conditions["size_bytes"]))
