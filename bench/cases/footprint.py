"""What a server costs before and after it works: start-up, memory, CPU when idle."""

import time
from typing import Any

from bench.comparison.case import Bench, FreshServerCase, Scale, Variant
from bench.peers import Peer

IDLE_S = 3.0
LOAD_S = 2.0
SIZE_BYTES = 1024


class Footprint(FreshServerCase):
    """A server of its own, started on an empty directory."""

    name = "footprint"
    title = "Start-up, memory, idle CPU"
    text = (
        "A fresh server on an empty directory: seconds from the start of the process to the first acknowledged send, "
        "resident and anonymous memory and CPU while nothing happens, memory after two seconds of sends with 64 in "
        "flight. Heaps of JVMs are set to BENCH_JAVA_HEAP (1g), minimum and maximum."
    )
    metric = "first_send_s"

    def variants(self, scale: Scale) -> list[Variant]:
        """One."""
        return [Variant("empty store", {"size_bytes": SIZE_BYTES}, round_s=14.0, prepare_s=0, repeats=1)]

    def measure(self, bench: Bench, peer: Peer, variant: Variant) -> dict[str, Any]:
        """Start it, let it idle, load it."""
        topic = bench.topic(self, peer, variant)
        bench.fleet.worker(peer)
        with self.server(bench, peer, variant) as server:
            begin = time.perf_counter()
            server.start()
            first = {"op": "first", "topics": [topic], "size_bytes": SIZE_BYTES, "create": True, "seconds": 60}
            bench.fleet.ask(peer, server, first, 120)
            first_send_s = time.perf_counter() - begin
            time.sleep(1)
            cpu_s, begin = server.cpu_s(), time.perf_counter()
            time.sleep(IDLE_S)
            idle = (server.cpu_s() - cpu_s) / (time.perf_counter() - begin)
            idle_memory = server.memory_mb()
            job = {"op": "closed", "topics": [topic], "size_bytes": SIZE_BYTES, "in_flight": 64, "seconds": LOAD_S}
            answer = bench.fleet.ask(peer, server, job, 60)
            loaded, threads = server.memory_mb(), server.threads()
        return {
            "first_send_s": round(first_send_s, 3),
            "idle_cpu_percent": round(idle * 100, 2),
            **{f"idle_{name}": value for name, value in idle_memory.items()},
            **{f"loaded_{name}": value for name, value in loaded.items()},
            "threads": threads,
            "loaded_messages": answer["count"],
        }
