"""Many requests, a bounded number at a time."""

import asyncio

import pytest

from pocketmq.client.together import together


async def test_results_are_in_order_and_never_too_many_run_at_once() -> None:
    """However long each takes."""
    running = most = 0

    async def ask(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return -number

    assert await together(ask, range(1_000), at_once=64) == [-number for number in range(1_000)]
    assert most == 64


async def test_the_first_error_ends_it() -> None:
    """What has not begun never begins."""
    asked: list[int] = []

    async def ask(number: int) -> None:
        asked.append(number)
        if number == 5:
            raise ValueError("five")

    with pytest.raises(ValueError, match="five"):
        await together(ask, range(100), at_once=10)
    assert asked == list(range(10))
