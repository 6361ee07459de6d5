"""Goodput under overload: offered load from half of what the broker can do to ten times that, open loop.

Conditions: the broker appends to a disk slowed by ``APPEND_DELAY_MS`` an append (its fault-injecting file system), so
that a client on the same two cores can offer ten times its capacity; clients give up after 3 s and retry nothing.
Two paces: RocketMQ's (one request a drain), and drains of 16. Fast failure on and off. Capacity is what 64 requests in
flight (closed loop) reach on the same broker just before. Only sends whose client still waited count as accepted.

The plot lands beside the results.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.base.broker_process import BrokerProcess
from bench.base.harness import Row, faulty_disk, scaled, workspace
from bench.base.open_loop import Load, offer
from bench.report.charts import Panel, scaling

APPEND_DELAY_MS = 2
LEVELS = scaled((0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0), (0.5, 5.0))
PHASE_S = scaled(8.0, 1.5)
PACES = {"one request a drain": 1, "16 requests a drain": 16}
LIMIT_MS = 200
"""``wait_time_mills_in_send_queue``."""


def phases(directory: Path, pace: str, fast_failure: bool) -> Iterator[Row]:
    """Yield one row a level, all on one broker."""
    rule = {"operations": ["store", "write_at"], "path": "commitlog/*", "delay_ms": APPEND_DELAY_MS, "bytes_min": 64}
    settings = [
        *faulty_disk(directory / "faults.json", rule),
        f"broker.send_drain_max={PACES[pace]}",
        f"broker.broker_fast_failure_enable={str(fast_failure).lower()}",
    ]
    with BrokerProcess(directory / f"{PACES[pace]}-{fast_failure}", *settings) as broker:
        closed = Load(broker.address, "overload", 0, 4, in_flight=64)
        offer(closed)
        outcome = offer(closed)
        capacity = len(outcome.accepted_ms) / closed.seconds
        if not capacity:
            raise RuntimeError(f"the broker has no capacity to overload: {outcome.summary()}")
        for level in LEVELS:
            load = Load(broker.address, "overload", capacity * level, PHASE_S)
            cpu_s = broker.cpu_s()
            measured = offer(load).metrics(load)
            yield {
                "case": pace,
                "fast_failure": fast_failure,
                "level": level,
                "capacity_per_s": round(capacity, 1),
                "append_delay_ms": APPEND_DELAY_MS,
                **measured,
                "broker_cpu": round((broker.cpu_s() - cpu_s) / PHASE_S, 2),
                "anonymous_mb": round(broker.anonymous_mb()),
            }
            time.sleep(1)
            offer(Load(broker.address, "overload", 0, 0.2, in_flight=1))  # what is still queued goes first


def verdict(rows: list[Row]) -> Row:
    """Return goodput at 5 times capacity as a ratio of its peak, and the tails beside their goals."""
    at_five = next(row for row in rows if row["level"] == 5.0)
    goodput = {row["level"]: float(str(row["accepted_per_s"])) for row in rows}
    peak = max(goodput.values())
    return {
        "verdict": rows[0]["case"],
        "fast_failure": rows[0]["fast_failure"],
        "goodput_at_5x_of_peak": round(goodput[5.0] / peak, 3) if peak else 0.0,
        "accepted_p99_at_5x_ms": at_five.get("accepted_p99_ms"),
        "refused_p99_at_5x_ms": at_five.get("refused_p99_ms"),
        "refused_max_at_5x_ms": at_five.get("refused_max_ms"),
        "goal": f"0.9, 250 ms, {LIMIT_MS + 20} ms",
    }


def plot(rows: list[Row], path: Path) -> None:
    """Draw goodput, the latency of accepted sends and the time to refusal over the offered load."""
    for row in rows:
        row["capacity"] = float(str(row["accepted_per_s"])) / float(str(row["capacity_per_s"]))

    def panel(title: str, key: str, **settings: Any) -> Panel:
        curves: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            of_pace = curves.setdefault(f"{row['case']}, fast failure {'on' if row['fast_failure'] else 'off'}", [])
            if key in row:
                of_pace.append((float(str(row["level"])), float(str(row[key]))))
        return Panel(title, "", curves, **settings)

    panels = [
        panel("accepted a second, of capacity", "capacity", logarithmic=False, ideal=True),
        panel("p99 of accepted sends, ms", "accepted_p99_ms", limit=250),
        panel("p99 of the time to refusal, ms", "refused_p99_ms", limit=LIMIT_MS + 20),
    ]
    scaling(path, "Overload", "Offered load, times capacity", panels, {})


def run() -> Iterator[Row]:
    """Yield every phase and the verdicts; draw the plot."""
    rows: list[Row] = []
    with workspace() as directory:
        for pace in PACES:
            for fast_failure in (True, False):
                of_run: list[Row] = []
                for row in phases(directory, pace, fast_failure):
                    of_run.append(row)
                    yield row
                rows += of_run
                yield verdict(of_run)
    path = Path("bench-results") / time.strftime("%Y%m%d-%H%M%S-overload.svg")
    plot(rows, path)
    yield {"plot": str(path)}
