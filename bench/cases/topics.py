"""Topics: the same load on one, a hundred and ten thousand of them."""

from typing import Any

from bench.comparison.case import Bench, Case, Scale, Variant
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
        """Three numbers."""
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

    def topics(self, bench: Bench, peer: Peer, variant: Variant) -> list[str]:
        """One for each send in turn; NATS: subjects of one stream."""
        first = "many." if peer.name == "nats" and variant.conditions["topics"] > 100 else ""
        name = bench.topic(self, peer, variant)
        return [f"{first}{name}_{number}" for number in range(variant.conditions["topics"])]

    def job(self, bench: Bench, peer: Peer, variant: Variant) -> dict[str, Any]:
        """Keep the clients open: the connection that measures has sent to every topic before."""
        return {**super().job(bench, peer, variant), "keep": True}

    def prepare(self, bench: Bench, peer: Peer, variant: Variant) -> None:
        """Make the topics and send one message to each."""
        job = self.job(bench, peer, variant)
        topics = job["topics"]
        for start in range(0, len(topics), CREATE_AT_ONCE):
            bench.create(peer, variant, topics[start : start + CREATE_AT_ONCE], queues=1)
        bench.ask(peer, variant, {**job, "seconds": 120, "bytes_max": len(topics) * SIZE_BYTES}, 200)

    def finish(self, bench: Bench, peer: Peer, variant: Variant) -> None:
        """Give the next case a new server where this one has ten thousand topics."""
        if variant.conditions["topics"] >= 1000:
            bench.fleet.forget(peer, variant.settings)
        else:
            super().finish(bench, peer, variant)
