"""Goodput under overload: offered load from half of what the broker can do to ten times that, open loop.

Conditions: the broker appends to a disk slowed by ``APPEND_DELAY_MS`` an append (its fault-injecting file system), so
that a client on the same two cores can offer ten times its capacity; clients give up after 3 s and retry nothing.
Two paces: RocketMQ's (one request a drain), and drains of 16. Fast failure on and off. Capacity is what 64 requests in
flight (closed loop) reach on the same broker just before. Only sends whose client still waited count as accepted.

The plot lands beside the results.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

from bench.base.broker_process import BrokerProcess
from bench.base.harness import Row, scaled, workspace
from bench.base.open_loop import Load, offer
from bench.own.broker.plots import Panel, draw

APPEND_DELAY_MS = 2
LEVELS = scaled((0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0), (0.5, 5.0))
PHASE_S = scaled(8.0, 1.5)
PACES = {"one request a drain": 1, "16 requests a drain": 16}
LIMIT_MS = 200
"""``wait_time_mills_in_send_queue``."""


def slow_disk(directory: Path) -> list[str]:
    """Return the settings of a broker whose every append takes ``APPEND_DELAY_MS`` more."""
    rules = directory / "faults.json"
    rule = {"operations": ["store", "write_at"], "path": "commitlog/*", "delay_ms": APPEND_DELAY_MS, "bytes_min": 64}
    rules.write_text(json.dumps({"rules": [rule]}))
    return ["fault.enable=true", f"fault.control_file={rules}"]


def phases(directory: Path, pace: str, fast_failure: bool) -> Iterator[Row]:
    """Yield one row a level, all on one broker."""
    settings = [*slow_disk(directory), f"broker.send_drain_max={PACES[pace]}"]
    settings.append(f"broker.broker_fast_failure_enable={str(fast_failure).lower()}")
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
            figures = offer(load).figures(load)
            yield {
                "case": pace,
                "fast_failure": fast_failure,
                "level": level,
                "capacity_per_s": round(capacity, 1),
                "append_delay_ms": APPEND_DELAY_MS,
                **figures,
                "broker_cpu": round((broker.cpu_s() - cpu_s) / PHASE_S, 2),
                "anonymous_mb": round(broker.anonymous_mb()),
            }
            time.sleep(1)
            offer(Load(broker.address, "overload", 0, 0.2, in_flight=1))  # what is still queued goes first


def verdict(rows: list[Row]) -> Row:
    """Return goodput at 5 times capacity as a ratio of its peak, and the tails beside their goals."""

    def number(row: Row, key: str) -> float:
        value = row.get(key, 0.0)
        assert isinstance(value, int | float)
        return float(value)

    at_five = next(row for row in rows if row["level"] == 5.0)
    peak = max(number(row, "accepted_per_s") for row in rows)
    return {
        "verdict": rows[0]["case"],
        "fast_failure": rows[0]["fast_failure"],
        "goodput_at_5x_of_peak": round(number(at_five, "accepted_per_s") / peak, 3) if peak else 0.0,
        "accepted_p99_at_5x_ms": at_five.get("accepted_p99_ms"),
        "refused_p99_at_5x_ms": at_five.get("refused_p99_ms"),
        "refused_max_at_5x_ms": at_five.get("refused_max_ms"),
        "goal": f"0.9, 250 ms, {LIMIT_MS + 20} ms",
    }


def plot(rows: list[Row], path: Path) -> None:
    """Draw goodput, the latency of accepted sends and the time to refusal over the offered load."""
    lines = {
        f"{pace}, fast failure {'on' if on else 'off'}": [
            row for row in rows if row["case"] == pace and row["fast_failure"] is on
        ]
        for pace in PACES
        for on in (True, False)
    }
    panels = [
        Panel("accepted a second, of capacity", "capacity", ideal=True),
        Panel("p99 of accepted sends, ms", "accepted_p99_ms", logarithmic=True, limit=250),
        Panel("p99 of the time to refusal, ms", "refused_p99_ms", logarithmic=True, limit=LIMIT_MS + 20),
    ]
    for row in rows:
        row["capacity"] = float(str(row["accepted_per_s"])) / float(str(row["capacity_per_s"]))
    draw(path, "Offered load, times capacity", "level", lines, panels)


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
