"""Produce one by one: each message is a send of its own and awaits its own acknowledgement."""

from typing import Any

from bench.comparison.case import MESSAGES_IN_FLIGHT, Bench, Case, Scale, Variant
from bench.peers import Peer

SIZE_BYTES = 1024


class OneByOne(Case):
    """Closed loop; with one in flight the latency is that of the machine and both programs."""

    name = "one_by_one"
    title = "Produce one by one, 1 KiB"
    in_quick_run = True
    text = (
        "Closed loop: so many tasks (threads, callbacks) that each send one message and wait for its acknowledgement. "
        "PocketMQ, aiokafka and NATS put what is sent at the same moment into one packet; confluent-kafka lingers for "
        "0.5 ms to do so (with 0 it sends each message alone and is far slower), redis-py uses as many connections."
    )
    chart = "scaling"
    x_label = "messages in flight"

    def variants(self, scale: Scale) -> list[Variant]:
        """1, 64 and, in a full run, 1,024 in flight."""
        return [
            Variant(
                f"{in_flight} in flight", {"size_bytes": SIZE_BYTES, "in_flight": in_flight, "batch": 1}, x=in_flight
            )
            for in_flight in ((1, 64) if scale.quick else (1, 64, 1024))
        ]

    def measure(self, bench: Bench, peer: Peer, variant: Variant) -> dict[str, Any]:
        """Run one round; that with 64 in flight is the peak other cases refer to."""
        out = super().measure(bench, peer, variant)
        if variant.conditions["in_flight"] == MESSAGES_IN_FLIGHT and out.get("messages_per_s"):
            bench.peaks.setdefault(peer.name, []).append(out["messages_per_s"])
        return out
