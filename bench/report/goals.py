"""The speed goals of the project, beside what a run measured.

Lives here: each goal as a row: what is wanted, what was measured, whether it holds or by how much it is missed.
"""

from typing import TYPE_CHECKING

from bench.peers import PEERS

if TYPE_CHECKING:
    from bench.report.report import Report

OURS = "pocketmq"
KILOBYTE = "1,024 B, batches of 500"
SMALL = "100 B, batches of 1,000"
ARROW = "100 B, Arrow batches of 5,000"
LAYOUTS = ("contiguous", "interleaved")


def goal_rows(report: "Report") -> list[list[str]]:
    """Return (goal, wanted, measured, verdict) of every goal that the run measured."""
    rows: list[list[str]] = []

    def of(case: str, variant: str, peer: str = OURS, metric: str = "messages_per_s") -> float | None:
        group = report.group(case, variant, peer)
        return group.median(metric) if group else None

    def least(goal: str, wanted: str, measured: float | None, limit: float, text: str) -> None:
        """Add a goal for ``measured`` to reach ``limit``; ``text`` formats what was measured."""
        if measured is not None:
            verdict = "holds" if measured >= limit else f"missed: {measured / limit:.2f} of it"
            rows.append([goal, wanted, text.format(measured), verdict])

    def ratio(ours: float | None, theirs: float | None) -> float | None:
        return ours / theirs if ours is not None and theirs else None

    one = of("one_by_one", "64 in flight")
    python_peers = [peer for peer in PEERS if peer.python_client and peer.name != OURS]
    rates = {peer.label: of("one_by_one", "64 in flight", peer.name) or 0.0 for peer in python_peers}
    best = max(rates, key=lambda label: rates[label])
    times = ratio(one, rates[best])
    least("one by one, 64 in flight, 1 KiB", "3 × the best Python client", times, 3, f"{{:.2f}} × ({best})")
    batches = of("batches", KILOBYTE)
    times = ratio(batches, of("batches", KILOBYTE, "confluent"))
    least("batches of 1 KiB", "1.5 × confluent-kafka", times, 1.5, "{:.2f} ×")
    times = ratio(batches, report.floor("socket to file, 1024 B", "messages_per_s"))
    least("batches of 1 KiB", "0.5 of socket to file", times, 0.5, "{:.2f}")
    rate_goals = [
        ("batches of 100 B, Message objects", "batches", SMALL, 500_000),
        ("batches of 100 B, send_arrow", "batches", ARROW, 1_000_000),
    ]
    p50_ms = of("one_by_one", "1 in flight", metric="p50_ms")
    times = ratio(p50_ms, report.floor("uvloop echo, 1024 B, 1 in flight", "p50_ms"))
    if times is not None:
        verdict = "holds" if times <= 1.6 else f"missed: {times / 1.6:.2f} × of it"
        rows.append(["one in flight, p50", "1.6 × the echo floor", f"{times:.2f} × ({p50_ms:.3f} ms)", verdict])
    for layout in LAYOUTS:
        rate_goals.append((f"consume 100 B by Arrow, {layout}", "reading", f"by Arrow batch, {layout}", 1_500_000))
        rate_goals.append((f"consume 100 B by message, {layout}", "reading", f"by message, {layout}", 400_000))
    for goal, case, variant, rate in rate_goals:
        least(goal, f"{rate:,}/s", of(case, variant), rate, "{:,.0f}/s")
    times = ratio(of("topics", "10,000 topics"), of("topics", "1 topic"))
    least("10,000 topics", "0.9 of one topic", times, 0.9, "{:.2f}")
    for kind, wanted in (("single sends", 0.5), ("frames of 16", 0.8)):
        times = ratio(of("connections", f"500 connections, {kind}"), of("connections", f"1 connection, {kind}"))
        least(f"500 connections, {kind}", f"{wanted:g} of one", times, wanted, "{:.2f}")
    for case, variant in (("one_by_one", "64 in flight"), ("batches", KILOBYTE)):
        times = ratio(of(case, variant), of(case, variant, "rocketmq"))
        least(f"{case}, {variant}, beside RocketMQ", "ahead", times, 1, "{:.2f} ×")
    ours = of("latency", "50% of peak", metric="delivered_p99_ms")
    times = ratio(of("latency", "50% of peak", "rocketmq", "delivered_p99_ms"), ours)
    least("p99 end to end at 50 % load, beside RocketMQ", "ahead", times, 1, "{:.2f} × better")
    return rows
