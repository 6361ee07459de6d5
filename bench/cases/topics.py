"""Topics: the same load on one, a hundred and ten thousand of them."""

from typing import Any

from bench.comparison.case import Bench, Case, Scale, Variant, figures
from bench.peers import Peer

SIZE_BYTES = 1024
IN_FLIGHT = 64
CREATE_AT_ONCE = 1_000
"""Topics of one job, which must end within its limit."""


class Topics(Case):
    """Every send goes to the next topic."""

    name = "topics"
    title = "1, 100 and 10,000 topics, 1 KiB"
    text = (
        f"Closed loop with {IN_FLIGHT} in flight, one by one, each to the next of the topics, which have one queue "
        "each. Every topic has been sent to once before, by the same connection. Redis: keys; NATS: subjects of one "
        "stream."
    )
    chart = "scaling"
    x_label = "topics"

    def variants(self, scale: Scale) -> list[Variant]:
        """Three numbers; nothing in a quick run."""
        if scale.quick:
            return []
        return [
            Variant(
                f"{count:,} topic{'s' * (count > 1)}",
                {"size_bytes": SIZE_BYTES, "in_flight": IN_FLIGHT, "batch": 1, "topics": count, "queues": 1},
                x=count,
                prepare_s=1.0 if count < 10_000 else 30.0,
            )
            for count in (1, 100, 10_000)
        ]

    def refuses(self, peer: Peer, variant: Variant) -> str:
        """Some servers take minutes to make so many."""
        if variant.conditions["topics"] > peer.topics_max:
            return f"making more than {peer.topics_max:,} topics takes it minutes"
        return super().refuses(peer, variant)

    def _topics(self, bench: Bench, peer: Peer, variant: Variant) -> list[str]:
        first = "many." if peer.name == "nats" and variant.conditions["topics"] > 100 else ""
        name = bench.topic(self, peer, variant)
        return [f"{first}{name}_{number}" for number in range(variant.conditions["topics"])]

    def _job(self, bench: Bench, peer: Peer, variant: Variant) -> dict[str, Any]:
        topics = self._topics(bench, peer, variant)
        return {"op": "closed", "topics": topics, "size_bytes": SIZE_BYTES, "in_flight": IN_FLIGHT, "keep": True}

    def prepare(self, bench: Bench, peer: Peer, variant: Variant) -> None:
        """Make the topics and send one message to each."""
        topics = self._topics(bench, peer, variant)
        for start in range(0, len(topics), CREATE_AT_ONCE):
            bench.create(peer, variant, topics[start : start + CREATE_AT_ONCE], queues=1)
        bytes_max = len(topics) * SIZE_BYTES
        bench.ask(peer, variant, {**self._job(bench, peer, variant), "seconds": 120, "bytes_max": bytes_max}, 200)

    def measure(self, bench: Bench, peer: Peer, variant: Variant) -> dict[str, Any]:
        """Run one round."""
        job = self._job(bench, peer, variant)
        return figures(bench.ask(peer, variant, {**job, "seconds": bench.scale.seconds}), SIZE_BYTES)

    def finish(self, bench: Bench, peer: Peer, variant: Variant) -> None:
        """Start anew: a server with ten thousand topics is not the one the next case wants."""
        if variant.conditions["topics"] >= 1000:
            bench.fleet.forget(peer, variant.settings)
        else:
            bench.delete(peer, variant, self._topics(bench, peer, variant))
