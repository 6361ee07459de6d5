"""What a case of the comparison is, and what it may use.

Lives here: ``Case``, ``FreshServerCase``, ``Variant``, ``Scale`` (how long, how often), ``Bench`` (topics, jobs,
peaks), ``measurements``.
"""

import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, ClassVar

from bench.base.histogram import Latencies
from bench.comparison.fleet import Answer, Fleet
from bench.peers import SAME_SERVER, Peer
from bench.peers.base import Server, Settings

FILL_S_MAX = 12.0
MESSAGES_IN_FLIGHT = 64


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of a run there is time for."""

    quick: bool
    repeats: int
    seconds: float
    warm_s: float


FULL = Scale(quick=False, repeats=3, seconds=1.5, warm_s=5.0)
QUICK = Scale(quick=True, repeats=1, seconds=0.7, warm_s=1.0)


@dataclass(frozen=True, slots=True)
class Variant:
    """One row of a case's table. ``label`` names it within the case; ``x`` is its place on a scaling curve.

    ``round_s``: about how long one round of one peer takes, ``prepare_s`` what comes before the first.
    """

    label: str
    conditions: dict[str, Any]
    settings: Settings = field(default_factory=Settings)
    x: float | None = None
    round_s: float = 2.0
    prepare_s: float = 0.3
    repeats: int | None = None


@dataclass(slots=True)
class Bench:
    """What a case works with: the fleet, the scale, the peaks that were measured in this run.

    ``peaks``: messages a second of each peer with 64 in flight, one by one, by round.
    """

    fleet: Fleet
    scale: Scale
    peaks: dict[str, list[float]] = field(default_factory=dict)

    def topic(self, case: "Case", peer: Peer, variant: Variant) -> str:
        """Return a topic name that no other case, peer or variant of this run has."""
        letters = "".join(each if each.isalnum() else "_" for each in variant.label)
        return f"Bench_{case.name}_{peer.name}_{letters}".replace("-", "_")

    def server(self, peer: Peer, variant: Variant) -> Server:
        """Return the running, warm server for this variant."""
        return self.fleet.server(peer, variant.settings)

    def ask(self, peer: Peer, variant: Variant, job: Answer, limit_s: float = 120.0) -> Answer:
        """Run a job against that server."""
        return self.fleet.ask(peer, self.server(peer, variant), job, limit_s)

    def create(self, peer: Peer, variant: Variant, topics: list[str], queues: int = 4) -> None:
        """Make empty topics."""
        self.ask(peer, variant, {"op": "create", "topics": topics, "queues": queues}, 200)

    def delete(self, peer: Peer, variant: Variant, topics: list[str]) -> None:
        """Remove topics."""
        self.ask(peer, variant, {"op": "delete", "topics": topics}, 200)

    def fill(self, peer: Peer, variant: Variant, topic: str, size_bytes: int, count: int) -> int:
        """Send about ``count`` messages in batches, within ``FILL_S_MAX``; return how many it became."""
        job = {"op": "closed", "topics": [topic], "size_bytes": size_bytes, "in_flight": 2, "batch": 500}
        bytes_max = max(1, count * size_bytes)
        answer = self.ask(peer, variant, {**job, "seconds": FILL_S_MAX, "bytes_max": bytes_max})
        if not answer["count"]:
            raise RuntimeError(f"nothing could be sent: {answer.get('first_error', '')}")
        return int(answer["count"])

    def peak(self, peer: Peer, variant: Variant, topic: str) -> float:
        """Return the median rate with 64 in flight of this run; measured now if no case has done it."""
        if not self.peaks.get(peer.name):
            job = {"op": "closed", "topics": [topic], "size_bytes": 1024, "in_flight": MESSAGES_IN_FLIGHT}
            answer = self.ask(peer, variant, {**job, "seconds": self.scale.seconds})
            if not answer["count"]:
                raise RuntimeError(f"no send was acknowledged: {answer.get('first_error', '')}")
            self.peaks[peer.name] = [answer["count"] / answer["elapsed_s"]]
        return median(self.peaks[peer.name])


class Case(ABC):
    """One question that every peer answers under the same conditions."""

    name: ClassVar[str]
    title: ClassVar[str]
    text: ClassVar[str]
    """What is measured and how, for the report."""
    chart: ClassVar[str] = "bars"
    """``bars`` (throughput), ``percentiles`` or ``scaling``."""
    x_label: ClassVar[str] = ""
    metric: ClassVar[str] = "messages_per_s"
    """Which metric the report compares; more is better, unless it ends in ``_s`` or ``_ms`` or ``_mb``."""
    in_quick_run: ClassVar[bool] = False

    @abstractmethod
    def variants(self, scale: Scale) -> list[Variant]:
        """Return what is measured at this scale."""

    def refuses(self, peer: Peer, variant: Variant) -> str:
        """Return why this peer cannot do this variant, or nothing."""
        durability = variant.settings.durability
        return "" if durability in peer.acknowledged else f"has no such durability: {durability}"

    def topics(self, bench: Bench, peer: Peer, variant: Variant) -> list[str]:
        """Return the topics that the rounds use."""
        return [bench.topic(self, peer, variant)]

    def prepare(self, bench: Bench, peer: Peer, variant: Variant) -> None:
        """Make what the rounds need."""
        bench.create(peer, variant, self.topics(bench, peer, variant))

    def job(self, bench: Bench, peer: Peer, variant: Variant) -> dict[str, Any]:
        """Return a closed loop under the variant's conditions."""
        return {**variant.conditions, "op": "closed", "topics": self.topics(bench, peer, variant)}

    def measure(self, bench: Bench, peer: Peer, variant: Variant) -> dict[str, Any]:
        """Run one round and return its measurements."""
        job = self.job(bench, peer, variant)
        return measurements(bench.ask(peer, variant, {**job, "seconds": bench.scale.seconds}), job["size_bytes"])

    def offer(self, bench: Bench, peer: Peer, variant: Variant, rate: float, *, follow: bool) -> dict[str, Any]:
        """Offer ``rate`` messages a second in an open loop; with ``follow`` a consumer reads them."""
        conditions = variant.conditions
        job = {"op": "open", "topics": self.topics(bench, peer, variant), "rate": rate, "follow": follow}
        answer = bench.ask(peer, variant, {**job, **{key: conditions[key] for key in ("size_bytes", "seconds")}})
        return {**measurements(answer, conditions["size_bytes"]), "offered_per_s": round(rate, 1)}

    def finish(self, bench: Bench, peer: Peer, variant: Variant) -> None:
        """Remove what ``prepare`` made."""
        bench.delete(peer, variant, self.topics(bench, peer, variant))


class FreshServerCase(Case):
    """A case whose every round has a server of its own; it shares nothing with other cases."""

    def refuses(self, peer: Peer, variant: Variant) -> str:
        """One client is enough for each server."""
        same = SAME_SERVER.get(peer.name, "")
        return f"the server is that of {same}" if same else super().refuses(peer, variant)

    def prepare(self, bench: Bench, peer: Peer, variant: Variant) -> None:
        """Start nothing: each round does."""

    def finish(self, bench: Bench, peer: Peer, variant: Variant) -> None:
        """Leave nothing to remove."""

    @contextmanager
    def server(self, bench: Bench, peer: Peer, variant: Variant) -> Iterator[Server]:
        """A new server, not started, which is killed and removed at the end."""
        server = bench.fleet.new_server(peer, variant.settings)
        try:
            yield server
        finally:
            bench.fleet.discard(server, signal.SIGKILL)


def measurements(answer: Answer, size_bytes: int) -> dict[str, Any]:
    """Return a worker's answer as metrics: rates, CPU a message, percentiles beside the histograms."""
    count, elapsed_s = int(answer.get("count", 0)), float(answer.get("elapsed_s", 0.0))
    out: dict[str, Any] = {"count": count, "elapsed_s": elapsed_s}
    if elapsed_s > 0:
        out["messages_per_s"] = round(count / elapsed_s, 1)
        out["mb_per_s"] = round(count * size_bytes / elapsed_s / 1e6, 2)
    for side in ("client", "server"):
        used = answer.get(f"{side}_cpu_s")
        if used is not None and count:
            out[f"{side}_cpu_us"] = round(float(used) / count * 1e6, 2)
    for key, name in (("latency_hdr", ""), ("delivered_hdr", "delivered")):
        if key in answer:
            out |= Latencies.decode(answer[key]).metrics(name)
            out[key] = answer[key]
    taken = {"count", "elapsed_s", "client_cpu_s", "server_cpu_s", "latency_hdr", "delivered_hdr"}
    out |= {key: value for key, value in answer.items() if key not in taken}
    return out
