"""RocketMQ's semaphores: counts, waiting, and the texts for sends that are too fast."""

import asyncio

import pytest

from pocketmq.client.sender.in_flight import InFlight
from pocketmq.remoting.errors import RemotingTooMuchRequestError


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_sends_bytes_and_oneways_have_limits_of_their_own() -> None:
    """Each is refused in RocketMQ's words, and admitted again when a send has ended."""
    held = InFlight(1000, sends_max=2, oneways_max=1)
    held.check(False)
    held.add(10, 2, False)
    with pytest.raises(RemotingTooMuchRequestError, match="invokeAsyncImpl invoke too fast: 2 sends wait"):
        held.check(False)
    held.check(True)
    held.add(10, 1, True)
    with pytest.raises(RemotingTooMuchRequestError, match="invokeOnewayImpl invoke too fast: 1 oneway messages"):
        held.check(True)
    held.remove(10, 2, False)
    held.remove(10, 1, True)
    held.add(1000, 1, False)
    for oneway in (False, True):
        with pytest.raises(RemotingTooMuchRequestError, match="1000 bytes are held"):
            held.check(oneway)
    held.remove(1000, 1, False)
    assert (held.sends, held.oneways, held.bytes_held, held.full) == (0, 0, 0, False)


async def test_waiting_ends_with_room_one_at_a_time() -> None:
    """Each admitted send may fill the room again, so the next one checks for itself."""
    held = InFlight(1000, sends_max=1)
    held.add(1, 1, False)
    deadline = asyncio.get_running_loop().time() + 60
    entered: list[int] = []

    async def enter(number: int) -> None:
        await held.wait(deadline)
        held.add(1, 1, False)
        entered.append(number)

    tasks = [asyncio.ensure_future(enter(number)) for number in range(3)]
    await settle()
    for count in (1, 2, 3):
        held.remove(1, 1, False)
        await settle()
        assert entered == list(range(count))
    await asyncio.gather(*tasks)


async def test_waiting_too_long_has_rocketmqs_text() -> None:
    """Time, waiting sends, permits left (NettyRemotingAbstract.java)."""
    held = InFlight(1000, sends_max=1)
    held.add(1, 1, False)
    with pytest.raises(RemotingTooMuchRequestError) as caught:
        await held.wait(asyncio.get_running_loop().time() + 0.01)
    assert caught.value.what.startswith("invokeAsyncImpl tryAcquire semaphore timeout, ")
    assert caught.value.what.endswith("ms, waiting thread nums: 0 semaphoreAsyncValue: 0")


async def test_a_stop_ends_all_waiting() -> None:
    """No send waits for a stopped producer."""
    held = InFlight(1000, sends_max=1)
    held.add(1, 1, False)
    task = asyncio.ensure_future(held.wait(asyncio.get_running_loop().time() + 60))
    await settle()
    held.fail_waiting(RuntimeError("stopped"))
    with pytest.raises(RuntimeError, match="stopped"):
        await task
