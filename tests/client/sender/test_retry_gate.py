"""Waiting for the token of a retry."""

import asyncio

import pytest

from pocketmq.client.sender.retry_budget import RetryBudget
from pocketmq.client.sender.retry_gate import RetryGate


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_waits_gets_the_token_that_comes_back() -> None:
    """First come, first served; no retry fails while a token may still return."""
    gate = RetryGate(RetryBudget(0.1, 1))
    assert await gate.enter("b", 1000)
    order: list[int] = []

    async def wait(number: int) -> None:
        assert await gate.enter("b", 60_000)
        order.append(number)

    tasks = [asyncio.ensure_future(wait(number)) for number in range(3)]
    await settle()
    assert gate.waiting("b") == 3
    for count in (1, 2, 3):
        gate.leave("b", in_vain=False)
        await settle()
        assert order == list(range(count))
    await asyncio.gather(*tasks)
    assert gate.waiting("b") == 0


async def test_all_fail_when_the_last_token_is_lost() -> None:
    """No token can return: no retry waits for its deadline."""
    gate = RetryGate(RetryBudget(0.1, 1))
    assert await gate.enter("b", 1000)
    tasks = [asyncio.ensure_future(gate.enter("b", 60_000)) for _ in range(3)]
    await settle()
    gate.leave("b", in_vain=True)
    assert await asyncio.gather(*tasks) == [False, False, False]
    assert await gate.enter("b", 1000) is False


async def test_waiting_ends_with_the_time() -> None:
    """The caller's deadline holds here too."""
    gate = RetryGate(RetryBudget(0.1, 1))
    assert await gate.enter("b", 1000)
    with pytest.raises(TimeoutError):
        await gate.enter("b", 10)
    assert gate.waiting("b") == 0


async def test_a_turn_given_to_somebody_who_gave_up_goes_on() -> None:
    """If a waiter is cancelled at its turn, the next one gets the turn."""
    gate = RetryGate(RetryBudget(0.1, 1))
    assert await gate.enter("b", 1000)
    first, second = (asyncio.ensure_future(gate.enter("b", 60_000)) for _ in range(2))
    await settle()
    gate.leave("b", in_vain=False)
    first.cancel()
    assert await second
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_brokers_do_not_wait_for_each_other() -> None:
    """Each broker has its own tokens."""
    gate = RetryGate(RetryBudget(0.1, 1))
    assert await gate.enter("a", 1000)
    assert await gate.enter("b", 0)
