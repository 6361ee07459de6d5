"""Strangers against real processes: memory, the others' sends, threads, files and the stop stay as they should.

Each stranger alone, then all together. Times belong to the machine, which has other tests to serve: only what no slow
machine explains fails.
"""

from pathlib import Path

import pytest

from tests.attack.attacked import Site, Verdict
from tests.attack.strangers import STRANGERS

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

SECONDS = 8.0
RSS_MIB_MAX = 450
HANG_S = 30.0
"""Sends that are refused, or a stop that takes, for longer: something hangs."""
MANY = ("broker_edges", "namesrv_edges", "random_frames", "half_frames", "closed_at_once", "false_slaves", "odd_http")


def held(verdict: Verdict) -> None:
    assert max(verdict.rss_mib.values()) < RSS_MIB_MAX, verdict
    assert verdict.longest_refusal_s < HANG_S, verdict
    assert max(verdict.stop_s.values()) < HANG_S, verdict
    assert verdict.threads_lost == [], verdict
    assert [event for event in verdict.bad_events if not event.startswith("bystander:")] == [], verdict
    assert verdict.outside == [], verdict


@pytest.mark.parametrize("name", STRANGERS)
async def test_a_stranger_keeps_nobody_waiting(name: str, tmp_path: Path) -> None:
    """The bystander's sends succeed, nothing dies, nothing is written elsewhere, and the stop is quick."""
    held(await Site(tmp_path).attacked([name], SECONDS, seed=7))


async def test_strangers_keep_nobody_waiting(tmp_path: Path) -> None:
    """The same with many of them at once."""
    held(await Site(tmp_path).attacked(MANY, SECONDS, seed=11))
