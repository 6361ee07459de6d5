"""The rules that make a broker's disk slow, or make it stall.

Lives here: ``APPENDS``, ``COMMITS``, ``WHOLE_DISK`` (what a rule hits), ``slow``, ``stalls``, ``for_good``.
"""

from collections.abc import Mapping
from typing import Final

from pocketmq.cli.scenario.knobs import Knobs

Rule = Mapping[str, object]
APPENDS: Final[Rule] = {"operations": ["store", "write_at"], "path": "commitlog/*", "bytes_min": 64}
"""Each append, once: a small group is written, a large one is stored into the map, and its head, below 64 bytes, is
written. With the write-buffer pool: each write of the commit thread."""
COMMITS: Final[Rule] = {"operations": ["write_at"], "path": "commitlog/*"}
"""Each write of the commit thread, which runs only with the write-buffer pool."""
WHOLE_DISK: Final[Rule] = {
    "operations": ["store", "scatter", "read", "write_at", "zero", "resize", "reserve", "sync", "sync_dir", "sync_all"]
}
"""Each call that moves data: what a disk does when it stands still."""


def slow(knobs: Knobs, append_ms: int, hits: Rule = APPENDS) -> list[Rule]:
    """Return the rule of a disk whose appends, or all calls, take some time each."""
    return [{**(WHOLE_DISK if knobs.get("whole_disk", False) else hits), "delay_ms": knobs.get("append_ms", append_ms)}]


def stalls(knobs: Knobs, begins_s: float, stall_ms: int) -> list[tuple[float, list[Rule]]]:
    """Return (second, rules) of a disk on which one append takes so long, or which stands still for so long."""
    if knobs.get("whole_disk", False):
        return [(begins_s, [{**WHOLE_DISK, "hang": True}]), (begins_s + stall_ms / 1000, [])]
    return [(begins_s, [{**APPENDS, "delay_ms": stall_ms, "count": 1}])]


def for_good(rule: Rule) -> Rule:
    """Return a rule that goes on: each call is hit, not only the first ones."""
    return {key: value for key, value in rule.items() if key != "count"}
