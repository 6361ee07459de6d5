"""What is measured: each case in alternating rounds of its contenders (A B A B), from which the medians are taken.

Lives here: ``Row`` (all rounds of a case), ``Run``, ``CASES``.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.base.histogram import Latencies
from bench.comparison.fleet import Answer
from bench.lean.lineup import OURS, Lineup

SIZE_BYTES: Final = 1024
TOPICS_AT_ONCE: Final = 1_000
CHECKPOINT_S: Final = 12.0
"""After this time the broker's first checkpoint (10 s) has made the files of the queues: 30,000 changes of directories
for 10,000 queues, once in their life."""
CLIENT_PROCESSES: Final = 4
FDATASYNC: Final = "fdatasync"

Measure = Callable[[], float]


@dataclass(slots=True)
class Row:
    """One case: what was measured (``unit``), and for each contender or variant the value of every round."""

    case: str
    title: str
    unit: str
    values: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def median(self, who: str) -> float | None:
        """Return the median of the rounds, or None if there is none."""
        found = self.values.get(who)
        return statistics.median(found) if found else None


@dataclass(slots=True)
class Run:
    """The rounds of one mode. ``seconds``: of a round."""

    lineup: Lineup
    directory: Path
    rounds: int
    seconds: float

    def row(self, case: str, title: str, unit: str, measures: dict[str, Measure]) -> Row:
        """Measure each in each round, beginning with the next one every time; drop one that fails."""
        made = Row(case, title, unit)
        left = dict(measures)
        for number in range(self.rounds):
            names = list(left)
            turn = number % len(names) if names else 0
            for name in names[turn:] + names[:turn]:
                try:
                    made.values.setdefault(name, []).append(left[name]())
                except Exception as error:  # the others go on without it
                    made.failed[name] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                    del left[name]
        return made

    def row_of(self, case: str, title: str, unit: str, names: Iterable[str], job: Answer) -> Row:
        """Measure one job for each contender, on a topic of its own with four queues."""
        ready = self.lineup.ready(names)
        topic = f"Lean_{case.replace(' ', '_')}"
        for name in ready:
            self.lineup.ask(name, {"op": "create", "topics": [topic], "queues": 4})
        job = {"op": "closed", "size_bytes": SIZE_BYTES, "topics": [topic], "seconds": self.seconds, **job}
        metric = p50_us if unit == "µs" else rate
        return self.row(case, title, unit, {name: self._measure(metric, name, job) for name in ready})

    def _measure(self, metric: Callable[[Answer], float], name: str, job: Answer) -> Measure:
        return lambda: metric(self.lineup.ask(name, job))


def p50_us(answer: Answer) -> float:
    """Return the median latency. Raises ``RuntimeError`` if nothing was acknowledged."""
    if "latency_hdr" not in answer:
        raise RuntimeError(f"nothing was measured: {answer.get('first_error', '')}")
    return Latencies.decode(answer["latency_hdr"]).percentile_ms(50) * 1000


def rate(answer: Answer) -> float:
    """Return messages a second. Raises ``RuntimeError`` if nothing was acknowledged, or a send failed."""
    if not answer["count"] or answer["failed"]:
        raise RuntimeError(f"{answer['failed']} of {answer['count']} failed: {answer.get('first_error', '')}")
    return float(answer["count"]) / float(answer["elapsed_s"])


def one_in_flight(run: Run) -> Row:
    """One message after the other on one connection."""
    names = (OURS, "nats", "redis", "echo")
    return run.row_of("one", "one in flight, p50", "µs", names, {"in_flight": 1})


def delivery(run: Run) -> Row:
    """From the call of ``send`` to the handler of a waiting push consumer, on a connection of its own."""
    title = "send to the handler of a waiting push consumer, p50"
    return run.row_of("delivery", title, "µs", (OURS, "nats"), {"op": "deliver", "connections": 2})


def connections(run: Run) -> Row:
    """100 connections of one client process, one in flight each."""
    job = {"in_flight": 100, "connections": 100, "keep": True}
    title = "100 connections, one in flight each"
    return run.row_of("connections", title, "/s", (OURS, "nats", "redis", "echo"), job)


def many_in_flight(run: Run) -> Row:
    """64 tasks on one connection, one topic."""
    names = (OURS, "nats", "aiokafka")
    return run.row_of("64", "64 in flight, one topic", "/s", names, {"in_flight": 64})


def topics(run: Run, counts: tuple[int, ...] = (1, 100, 10_000)) -> Row:
    """64 in flight, each send to the next topic; every topic has one queue, whose files are there."""
    made = Row("topics", "64 in flight over so many topics", "/s")
    if not run.lineup.ready([OURS]):
        return made
    job: dict[str, Any] = {"op": "closed", "size_bytes": SIZE_BYTES, "in_flight": 64, "keep": True}
    measures: dict[str, Measure] = {}
    for count in counts:
        names = [f"LeanTopics{count}_{number}" for number in range(count)]
        for start in range(0, count, TOPICS_AT_ONCE):
            some = names[start : start + TOPICS_AT_ONCE]
            run.lineup.ask(OURS, {"op": "create", "topics": some, "queues": 1}, 200)
        measures[f"{count:,} topic{'s' * (count > 1)}"] = partial(_over, run, {**job, "topics": names})
    for count in counts:  # after the last "create", which closes the connection that is kept
        names = [f"LeanTopics{count}_{number}" for number in range(count)]
        bytes_max = count * SIZE_BYTES
        run.lineup.ask(OURS, {**job, "topics": names, "seconds": 100, "bytes_max": bytes_max}, 200)
    time.sleep(CHECKPOINT_S if max(counts) > TOPICS_AT_ONCE else 0)
    made = run.row(made.case, made.title, made.unit, measures)
    run.lineup.end(OURS)
    return made


def _over(run: Run, job: Answer) -> float:
    return rate(run.lineup.ask(OURS, {**job, "seconds": run.seconds}))


def client_processes(run: Run) -> Row:
    """100 and 500 connections of several client processes, one in flight each."""
    title = f"connections of {CLIENT_PROCESSES} client processes, one in flight each"
    if not run.lineup.ready([OURS]):
        return Row("processes", title, "/s")
    topic = "Lean_processes"
    run.lineup.ask(OURS, {"op": "create", "topics": [topic], "queues": 4})
    measures: dict[str, Measure] = {}
    for place, total in enumerate((100, 500)):
        each = total // CLIENT_PROCESSES
        job = {"op": "closed", "size_bytes": SIZE_BYTES, "topics": [topic], "keep": True}
        job |= {"in_flight": each, "connections": each, "seconds": run.seconds}
        numbers = range(1 + place * CLIENT_PROCESSES, 1 + (place + 1) * CLIENT_PROCESSES)
        run.lineup.ask_all(OURS, numbers, {**job, "seconds": 0.2})
        measures[f"{total} connections"] = partial(_together, run, numbers, job)
    made = run.row("processes", title, "/s", measures)
    run.lineup.end(OURS)
    return made


def _together(run: Run, numbers: Iterable[int], job: Answer) -> float:
    return sum(map(rate, run.lineup.ask_all(OURS, numbers, job)))


def sync_flush(run: Run) -> Row:
    """SYNC_FLUSH, one in flight, beside ``fdatasync`` of 1 KiB in a file whose blocks were written before."""
    title = "SYNC_FLUSH, one in flight, p50"
    ready = run.lineup.ready(["synced"])
    topic = "Lean_sync"
    measures: dict[str, Measure] = {FDATASYNC: partial(_fdatasync_us, run)}
    if ready:
        run.lineup.ask("synced", {"op": "create", "topics": [topic], "queues": 4})
        job = {"op": "closed", "size_bytes": SIZE_BYTES, "topics": [topic], "in_flight": 1, "seconds": run.seconds}
        measures["synced"] = lambda: p50_us(run.lineup.ask("synced", job))
    return run.row("sync", title, "µs", measures)


def _fdatasync_us(run: Run) -> float:
    path = str(run.directory / "fdatasync")
    text = run.lineup.run_as_server("bench.lean.disk", path, str(SIZE_BYTES), str(run.seconds))
    return float(json.loads(text)["p50_ms"]) * 1000


def java_one(run: Run) -> Row:
    """RocketMQ's Java client, one in flight."""
    return run.row_of("java one", "RocketMQ's Java client, one in flight, p50", "µs", JAVA, {"in_flight": 1})


def java_many(run: Run) -> Row:
    """RocketMQ's Java client, 64 in flight."""
    return run.row_of("java 64", "RocketMQ's Java client, 64 in flight", "/s", JAVA, {"in_flight": 64})


JAVA: Final = ("java", "rocketmq")
CASES: Final[dict[str, Callable[[Run], Row]]] = {
    "one": one_in_flight,
    "delivery": delivery,
    "connections": connections,
    "64": many_in_flight,
    "topics": topics,
    "processes": client_processes,
    "sync": sync_flush,
    "java one": java_one,
    "java 64": java_many,
}
QUICK: Final[dict[str, Callable[[Run], Row]]] = {
    **{name: case for name, case in CASES.items() if not name.startswith("java")},
    "topics": partial(topics, counts=(1, 100)),
}
"""A quick run has no Java, whose compiler alone takes a minute, and no 10,000 topics."""


def run_cases(run: Run, cases: dict[str, Callable[[Run], Row]]) -> list[Row]:
    """Measure every case; one that fails as a whole is noted, and the others go on."""
    rows = []
    for name, case in cases.items():
        begin = time.monotonic()
        try:
            row = case(run)
        except Exception as error:
            row = Row(name, name, "", failed={"all": " ".join(f"{type(error).__name__}: {error}".split())[:300]})
        text = "  ".join(f"{who} {row.median(who) or 0:,.0f}" for who in row.values)
        seconds = f"{time.monotonic() - begin:.0f} s"
        print(f"    {row.title}: {text} {row.unit}  {row.failed or ''} ({seconds})", file=sys.stderr, flush=True)
        rows.append(row)
    return rows
