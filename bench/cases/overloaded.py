"""Overload: half as much again as the peak is offered, open loop."""

from typing import Any

from bench.comparison.case import Bench, Case, Scale, Variant
from bench.peers import Peer

SIZE_BYTES = 1024
SHARES = (1.5, 3.0)
PHASE_S = 3.0


class Overloaded(Case):
    """What is still acknowledged when more is offered than can be done."""

    name = "overloaded"
    title = "Overload, 1 KiB"
    text = (
        "Open loop at 1.5 and 3 times the peer's own peak with 64 in flight; the client gives up on what would be more "
        "than 20,000 unanswered sends. Goodput: acknowledged messages a second until the last answer. An open loop "
        "coalesces better than 64 in flight, so more than the peak can be reached. `python -m bench overload` drives "
        "PocketMQ to ten times its capacity on a slow disk."
    )

    def variants(self, scale: Scale) -> list[Variant]:
        """1.5 and 3 times the peak."""
        conditions = {"size_bytes": SIZE_BYTES, "batch": 1, "seconds": PHASE_S, "loop": "open"}
        return [
            Variant(
                f"{share:g} times the peak", {**conditions, "of_peak": share}, round_s=PHASE_S + 4, repeats=1, x=share
            )
            for share in SHARES
        ]

    def measure(self, bench: Bench, peer: Peer, variant: Variant) -> dict[str, Any]:
        """Offer it."""
        peak = bench.peak(peer, variant, bench.topic(self, peer, variant))
        out = self.offer(bench, peer, variant, peak * variant.conditions["of_peak"], follow=False)
        return {**out, "of_peak": round(float(out.get("messages_per_s", 0)) / peak, 3)}
