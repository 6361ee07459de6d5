"""Restart and recovery: the time from the start of a server to its first acknowledged send, by the size of its log."""

import os
import signal
import time
from typing import Any

from bench.comparison.case import Bench, FreshServerCase, Scale, Variant
from bench.peers import Peer
from bench.peers.base import Server

SIZE_BYTES = 1024
MEGABYTES = (64, 512, *([round(float(os.environ["GIGABYTES"]) * 1000)] if "GIGABYTES" in os.environ else []))
FILL_S = 8.0
FILL_BYTES_A_S = 50_000_000
"""Of a size beyond what 8 s fill."""


class Restarts(FreshServerCase):
    """After a clean stop, and after ``kill -9`` right behind the last acknowledged message."""

    name = "restarts"
    title = "Restart and recovery by log size"
    text = (
        "A server of its own is filled with messages of 1 KiB in batches (for 8 s at most: `filled_mb` says how far "
        "that went), stopped and started, killed and started. Time: from the start of the process to the first "
        "acknowledged send of a client that tries every 20 ms. `GIGABYTES=5` adds a size of 5 GB; "
        "`python -m bench recovery` measures the store alone."
    )
    metric = "after_kill_s"

    def variants(self, scale: Scale) -> list[Variant]:
        """Two sizes, one round each."""
        return [
            Variant(
                f"{size} MB",
                {"size_bytes": SIZE_BYTES, "log_mb": size},
                x=size,
                round_s=14.0 if size < 100 else 24.0,
                prepare_s=0,
                repeats=1,
            )
            for size in MEGABYTES
        ]

    def measure(self, bench: Bench, peer: Peer, variant: Variant) -> dict[str, Any]:
        """Fill, stop, start; kill, start."""
        topic = bench.topic(self, peer, variant)
        with self.server(bench, peer, variant) as server:
            server.start()
            bench.fleet.ask(peer, server, {"op": "create", "topics": [topic], "queues": 4})
            job = {"op": "closed", "topics": [topic], "size_bytes": SIZE_BYTES, "in_flight": 2, "batch": 500}
            bytes_max = variant.conditions["log_mb"] * 1_000_000
            fill_s = max(FILL_S, bytes_max / FILL_BYTES_A_S) if bytes_max > 1e9 else FILL_S
            filled = bench.fleet.ask(peer, server, {**job, "seconds": fill_s, "bytes_max": bytes_max}, fill_s + 60)
            begin = time.perf_counter()
            server.stop()
            stop_s = time.perf_counter() - begin
            clean_s = self._ready_s(bench, peer, server, topic)
            more = bench.fleet.ask(peer, server, {**job, "seconds": 1, "bytes_max": 32_000_000}, 60)
            server.stop(signal.SIGKILL)
            killed_s = self._ready_s(bench, peer, server, topic)
        return {
            "filled_mb": round((filled["count"] + more["count"]) * SIZE_BYTES / 1e6, 1),
            "stop_s": round(stop_s, 3),
            "after_stop_s": round(clean_s, 3),
            "after_kill_s": round(killed_s, 3),
        }

    def _ready_s(self, bench: Bench, peer: Peer, server: Server, topic: str) -> float:
        begin = time.perf_counter()
        server.start()
        bench.fleet.ask(peer, server, {"op": "first", "topics": [topic], "size_bytes": SIZE_BYTES, "seconds": 90}, 120)
        return time.perf_counter() - begin
