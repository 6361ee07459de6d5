"""Consume a backlog: by message, by batch, by Arrow columns; contiguous, and interleaved over four queues."""

from typing import Any

from bench.comparison.case import Bench, Case, Scale, Variant, measurements
from bench.peers import Peer

SIZE_BYTES = 100
COUNT = 300_000
COUNT_QUICK = 100_000
INTERLEAVED_COUNT = 60_000
INTERLEAVED: dict[str, dict[str, Any]] = {
    "pocketmq": {"in_flight": 1, "batch": 4, "how": "interleaved"},
    "rocketmq": {"in_flight": 4, "batch": 1},
}
"""How each peer that keeps all queues in one log is made to write them alternately: a message of each at a time."""
WAYS = {"message": "by message", "batch": "by batch", "arrow": "by Arrow batch"}


class Reading(Case):
    """Reading from the page cache, every body touched."""

    name = "reading"
    title = "Consume 100 B from the page cache"
    in_quick_run = True
    text = (
        "One consumer reads a backlog from its start and touches every body. By message: the library's iterator or "
        "listener; by batch: its list call; by Arrow: record batches of PocketMQ's default columns. Contiguous: filled "
        "in batches; interleaved: one message to each of four queues in turn, where all share one log. Java's clock "
        "starts with the first message, since its consumer takes up to a second to join. What was read from a classic "
        "queue is gone, so each round fills RabbitMQ's again."
    )

    def __init__(self) -> None:
        self._filled: dict[tuple[str, str], tuple[str, int]] = {}

    def variants(self, scale: Scale) -> list[Variant]:
        """Every way of reading in both layouts."""
        layouts = ("contiguous",) if scale.quick else ("contiguous", "interleaved")
        return [
            Variant(
                f"{text}, {layout}",
                {"size_bytes": SIZE_BYTES, "way": way, "layout": layout, "queues": 4},
                round_s=1.5,
                prepare_s=0.0 if way != "message" else 3.0 if layout == "contiguous" else 8.0,
            )
            for layout in layouts
            for way, text in WAYS.items()
        ]

    def refuses(self, peer: Peer, variant: Variant) -> str:
        """Not every library reads every way; separate logs do not interleave."""
        if variant.conditions["way"] not in peer.reads:
            return f"its client does not read {WAYS[variant.conditions['way']]}"
        if variant.conditions["layout"] == "interleaved" and peer.name not in INTERLEAVED:
            return "each of its queues is a file of its own: nothing interleaves"
        return super().refuses(peer, variant)

    def _topic(self, peer: Peer, variant: Variant) -> str:
        return f"Bench_{self.name}_{peer.name}_{variant.conditions['layout']}".replace("-", "_")

    def prepare(self, bench: Bench, peer: Peer, variant: Variant) -> None:
        """Fill the topic that all ways of reading this layout share, once for each server."""
        key = (peer.name, variant.conditions["layout"])
        where = str(bench.server(peer, variant).directory)
        if self._filled.get(key, ("", 0))[0] == where and not peer.reads_destroy:
            return
        bench.create(peer, variant, [self._topic(peer, variant)])
        self._filled[key] = (where, 0)
        if not peer.reads_destroy:
            self._fill(bench, peer, variant)

    def _fill(self, bench: Bench, peer: Peer, variant: Variant) -> None:
        topic, layout = self._topic(peer, variant), variant.conditions["layout"]
        if layout == "contiguous":
            count = bench.fill(peer, variant, topic, SIZE_BYTES, COUNT_QUICK if bench.scale.quick else COUNT)
        else:
            job = {"op": "closed", "topics": [topic], "size_bytes": SIZE_BYTES, "seconds": 10}
            bytes_max = INTERLEAVED_COUNT * SIZE_BYTES
            count = int(bench.ask(peer, variant, {**job, **INTERLEAVED[peer.name], "bytes_max": bytes_max})["count"])
        self._filled[peer.name, layout] = (self._filled[peer.name, layout][0], count)

    def measure(self, bench: Bench, peer: Peer, variant: Variant) -> dict[str, Any]:
        """Read everything once."""
        if peer.reads_destroy:
            self._fill(bench, peer, variant)
        job = {"op": "read", "topics": [self._topic(peer, variant)], "size_bytes": SIZE_BYTES}
        expected = self._filled[peer.name, variant.conditions["layout"]][1]
        answer = bench.ask(peer, variant, {**job, "how": variant.conditions["way"], "expected": expected})
        return measurements(answer, SIZE_BYTES)

    def finish(self, bench: Bench, peer: Peer, variant: Variant) -> None:
        """Leave it to the other ways of reading."""
