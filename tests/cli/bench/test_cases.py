"""The closed loop that ``pocketmq bench`` and the benchmarks of the repository share."""

import asyncio

import pytest

from pocketmq.cli.bench.cases import closed_loop


async def test_a_closed_loop_sends_its_count_and_never_more_at_once() -> None:
    """Each task sends one message after the other; every send has a latency."""
    under_way = most = 0

    async def send() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1

    row = await closed_loop(send, in_flight=4, count=42)
    assert (row.count, len(row.latencies_ms), most) == (40, 40, 4)
    assert row.rate > 0


async def test_no_time_means_no_send() -> None:
    """The limit is checked before each send."""

    async def send() -> None:
        raise AssertionError("a send after the end")

    assert (await closed_loop(send, in_flight=2, seconds=-1)).count == 0


async def test_an_error_ends_the_loop() -> None:
    """A benchmark must not report a rate of failures."""

    async def send() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await closed_loop(send, in_flight=1, count=3)
