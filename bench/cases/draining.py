"""A backlog is drained while new messages arrive."""

from typing import Any

from bench.comparison.case import Bench, Case, Scale, Variant, measurements
from bench.peers import Peer

SIZE_BYTES = 1024
BACKLOG = 100_000
RATE = 1_000
SECONDS = 3.0


class Draining(Case):
    """How fast a consumer catches up, and what that does to the sends beside it."""

    name = "draining"
    title = "Backlog drain while producing, 1 KiB"
    text = (
        f"A backlog of up to {BACKLOG:,} messages is read by the best way the client has besides Arrow, while an open "
        f"loop goes on sending {RATE:,} a second from the same process. The rate is that of the drain; the latencies "
        "are those of the sends meanwhile, from their intended times."
    )

    def __init__(self) -> None:
        self._filled: dict[str, int] = {}

    def variants(self, scale: Scale) -> list[Variant]:
        """One."""
        conditions = {"size_bytes": SIZE_BYTES, "backlog": BACKLOG, "rate": RATE, "loop": "open"}
        return [Variant(f"{BACKLOG:,} waiting", conditions, round_s=SECONDS + 1.5, prepare_s=4.0)]

    def prepare(self, bench: Bench, peer: Peer, variant: Variant) -> None:
        """Fill the backlog; one that reading destroys is filled for each round."""
        super().prepare(bench, peer, variant)
        if not peer.reads_destroy:
            self._fill(bench, peer, variant)

    def _fill(self, bench: Bench, peer: Peer, variant: Variant) -> None:
        topic = bench.topic(self, peer, variant)
        self._filled[peer.name] = bench.fill(peer, variant, topic, SIZE_BYTES, BACKLOG)

    def measure(self, bench: Bench, peer: Peer, variant: Variant) -> dict[str, Any]:
        """Drain it once."""
        if peer.reads_destroy:
            self._fill(bench, peer, variant)
        job = {"op": "drain", "topics": [bench.topic(self, peer, variant)], "size_bytes": SIZE_BYTES, "rate": RATE}
        how = "batch" if "batch" in peer.reads else "message"
        answer = bench.ask(peer, variant, {**job, "seconds": SECONDS, "how": how, "expected": self._filled[peer.name]})
        return {**measurements(answer, SIZE_BYTES), "read_by": how}
