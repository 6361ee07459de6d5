"""A run of the comparison: floors, then every case with every peer, in turn, as often as the scale says.

Lives here: which peers take part, the order (A B A B: a round of each peer, then the next round of each), failures of
a peer, the estimate of the time, progress.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.base.conditions import environment
from bench.base.results import ResultFile
from bench.comparison import floors
from bench.comparison.case import Bench, Case, Scale, Variant
from bench.comparison.fleet import Fleet
from bench.peers import Peer
from bench.peers.base import Unavailable

SERVER_START_S = 4.0
FLOORS_S = 25.0
FAILURES_MAX = 3
"""After so many failed variants in a row a peer takes no further part: a run must end in time."""

Step = tuple[Case, Variant]


def rounds(variant: Variant, scale: Scale) -> int:
    """Return how often a variant is measured: what it wants at most, never more than the scale."""
    return min(variant.repeats or scale.repeats, scale.repeats)


def plan(cases: Sequence[Case], scale: Scale) -> list[Step]:
    """Return all variants in the order in which they run."""
    return [
        (case, variant) for case in cases if case.in_quick_run or not scale.quick for variant in case.variants(scale)
    ]


def estimate_s(steps: Sequence[Step], peers: Sequence[Peer], scale: Scale) -> float:
    """Return about how many seconds a run takes once everything is installed."""
    total = FLOORS_S / 2 if scale.quick else FLOORS_S
    durabilities = {variant.settings.durability for _, variant in steps}
    total += len(durabilities) * sum(SERVER_START_S + scale.warm_s + 1 for _ in peers)
    for case, variant in steps:
        able = sum(not case.refuses(peer, variant) for peer in peers)
        share = min(1.0, scale.seconds / 1.5)
        total += able * (variant.prepare_s + rounds(variant, scale) * variant.round_s * share)
    return total


def clock_text(seconds: float) -> str:
    """Return minutes and seconds as a person says them."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class Suite:
    """One run; ``results`` gets every line as soon as it is known."""

    def __init__(self, scale: Scale, cases: Sequence[Case], peers: Sequence[Peer], results: ResultFile) -> None:
        self.scale = scale
        self.cases = list(cases)
        self.peers = list(peers)
        self.results = results
        self._failures: dict[str, int] = {}
        self._began = time.monotonic()

    def run(self) -> None:
        """Measure everything; a peer that fails is noted and the others go on."""
        say(f"{'quick' if self.scale.quick else 'full'} run of {len(self.cases)} cases, {len(self.peers)} peers")
        available = self._obtain()
        steps = plan(self.cases, self.scale)
        total_s = estimate_s(steps, available, self.scale)
        end = time.strftime("%H:%M", time.localtime(time.time() + total_s))
        say(f"about {clock_text(total_s)} from now, ending near {end}")
        self._began = time.monotonic()
        directory = Path(tempfile.mkdtemp(prefix="bench-data-", dir=".")).resolve()
        try:
            self._floors(directory)
            with Fleet(directory, self.scale.warm_s) as fleet:
                bench = Bench(fleet, self.scale)
                done_s = 0.0
                for number, (case, variant) in enumerate(steps, 1):
                    elapsed = time.monotonic() - self._began
                    left = max(0.0, total_s - max(elapsed, done_s))
                    where = f"{number}/{len(steps)}, {clock_text(elapsed)} gone, about {clock_text(left)} left"
                    say(f"[{where}] {case.title}: {variant.label}")
                    fleet.keep_only(variant.settings)
                    self._step(bench, case, variant, available)
                    done_s = estimate_s(steps[:number], available, self.scale)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        self.results.write("end", elapsed_s=round(time.monotonic() - self._began, 1))

    def _obtain(self) -> list[Peer]:
        """Install what is missing; return the peers that can take part, and write the first line of the results."""
        versions: dict[str, str] = {}
        why: dict[str, str] = {}
        for peer in self.peers:
            if peer.server.name in versions or peer.server.name in why:
                continue
            try:
                versions[peer.server.name] = peer.server.obtain()
            except (Unavailable, OSError, AssertionError) as error:
                why[peer.server.name] = " ".join(str(error).split())
        self.results.write(
            "environment",
            **environment(),
            servers=versions,
            scale={"quick": self.scale.quick, "repeats": self.scale.repeats, "seconds": self.scale.seconds},
            acknowledged={peer.name: peer.acknowledged for peer in self.peers},
            one_topic_is={peer.name: peer.one_topic_is for peer in self.peers},
        )
        for peer in self.peers:
            if peer.server.name in why:
                self.results.write("skip", peer=peer.name, why=why[peer.server.name])
                say(f"without {peer.label}: {why[peer.server.name]}")
        return [peer for peer in self.peers if peer.server.name in versions]

    def _floors(self, directory: Path) -> None:
        say("floors of the machine")
        try:
            for row in floors.rows(directory, quick=self.scale.quick):
                self.results.write("floor", **row)
                say("    " + "  ".join(f"{key}={value}" for key, value in row.items()))
        except Exception as error:  # the comparison is worth having without them
            self.results.write("failed", case="floors", why=f"{type(error).__name__}: {error}")
            say(f"    no floors: {error}")

    def _step(self, bench: Bench, case: Case, variant: Variant, available: list[Peer]) -> None:
        ready: list[Peer] = []
        for peer in available:
            if self._failures.get(peer.name, 0) >= FAILURES_MAX:
                continue
            why = case.refuses(peer, variant)
            if why:
                self.results.write("skip", case=case.name, variant=variant.label, peer=peer.name, why=why)
                continue
            try:
                case.prepare(bench, peer, variant)
                ready.append(peer)
            except Exception as error:
                self._failed(bench, case, variant, peer, error)
        for number in range(rounds(variant, bench.scale)):
            turn = number % len(ready) if ready else 0
            for peer in [*ready[turn:], *ready[:turn]]:
                try:
                    measured = case.measure(bench, peer, variant)
                except Exception as error:
                    ready.remove(peer)
                    self._failed(bench, case, variant, peer, error)
                    continue
                self._failures[peer.name] = 0
                self._write(case, variant, peer, number, measured)
        for peer in ready:
            try:
                case.finish(bench, peer, variant)
            except Exception:  # what is left over goes with the server's data
                bench.fleet.forget(peer, variant.settings)

    def _write(self, case: Case, variant: Variant, peer: Peer, number: int, measured: dict[str, object]) -> None:
        durability = variant.settings.durability
        self.results.write(
            "run",
            case=case.name,
            variant=variant.label,
            x=variant.x,
            peer=peer.name,
            round=number,
            conditions={
                **variant.conditions,
                "durability": durability,
                "acknowledged": peer.acknowledged[durability],
                "replicas": 2 if durability == "replicated" else 1,
            },
            figures=measured,
        )
        shown = ("messages_per_s", "p50_ms", "p99_ms", "delivered_p99_ms", "after_kill_s", "first_send_s", "failed")
        text = "  ".join(f"{key}={measured[key]}" for key in shown if measured.get(key))
        say(f"    {peer.name:<16} {text}")

    def _failed(self, bench: Bench, case: Case, variant: Variant, peer: Peer, error: Exception) -> None:
        """Record the failure and end the peer's server: the next case gets a new one."""
        why = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        self.results.write("failed", case=case.name, variant=variant.label, peer=peer.name, why=why)
        say(f"    {peer.name:<16} FAILED: {why[:200]}")
        self._failures[peer.name] = self._failures.get(peer.name, 0) + 1
        if self._failures[peer.name] == FAILURES_MAX:
            say(f"    {peer.name} has failed {FAILURES_MAX} times in a row and takes no further part")
        try:
            bench.fleet.forget(peer, variant.settings)
        except Exception as problem:
            say(f"    {peer.name} did not end cleanly: {problem}")


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)
