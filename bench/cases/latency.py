"""End to end latency at fixed rates, open loop."""

from typing import Any

from bench.comparison.case import Bench, Case, Scale, Variant
from bench.peers import Peer

SIZE_BYTES = 1024
SHARES = (0.1, 0.5, 0.8)
COMMON_RATE = 1_000
PHASE_S = 2.5


class Latency(Case):
    """From the intended time of sending to the acknowledgement, and to the consumer."""

    name = "latency"
    title = "End to end latency at fixed rates, 1 KiB"
    in_quick_run = True
    text = (
        "Open loop: messages are due at times fixed beforehand (exponential gaps, the same seed for all), and every "
        "latency counts from the time it was due, so that a stall shows in everything it held up (no coordinated "
        "omission). Producer and consumer share the client process. Rates are shares of the peer's own peak with 64 in "
        "flight in this run, and one rate that is the same for all."
    )
    chart = "percentiles"
    metric = "delivered_p99_ms"

    def variants(self, scale: Scale) -> list[Variant]:
        """10 %, 50 % and 80 % of the peak, and a common rate."""
        seconds = 1.5 if scale.quick else PHASE_S
        shares = (0.5,) if scale.quick else SHARES
        conditions = {"size_bytes": SIZE_BYTES, "batch": 1, "seconds": seconds, "loop": "open"}
        rows = [
            Variant(f"{share:.0%} of peak", {**conditions, "of_peak": share}, round_s=seconds + 1.5, x=share)
            for share in shares
        ]
        if scale.quick:
            return rows
        return [*rows, Variant(f"{COMMON_RATE:,}/s", {**conditions, "rate": COMMON_RATE}, round_s=seconds + 1.5)]

    def measure(self, bench: Bench, peer: Peer, variant: Variant) -> dict[str, Any]:
        """Offer the rate for some seconds."""
        rate = variant.conditions.get("rate")
        if not rate:
            rate = bench.peak(peer, variant, bench.topic(self, peer, variant)) * variant.conditions["of_peak"]
        return self.offer(bench, peer, variant, rate, follow=True)
