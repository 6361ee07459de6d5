"""The questions to brokers whose places others want: one each, bounded, all answered or forgotten."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.common.errors import PocketMQError
from pocketmq.namesrv.holders import (
    HOLDER_WAITING_MAX,
    WAITING_BYTES_MAX,
    WAITING_MAX,
    HolderBusy,
    Holders,
    Life,
)
from pocketmq.remoting.codec import Response
from pocketmq.remoting.errors import ConnectionLost
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.ha import HaStatusBody


class Holder:
    """A connection whose answers the test gives."""

    def __init__(self) -> None:
        self.asked: list[Callable[[Any], None]] = []

    def request_nowait(self, code: int, header: Any, *, timeout_ms: int, done: Callable[[Any], None]) -> None:
        self.asked.append(done)


def answer(body: bytes = b"", code: int = 0) -> Response:
    return Response(code, 1, "", None, body, 0, {}, 0)


def ask(holders: Holders, holder: Any, size_bytes: int = 10) -> list[Life]:
    got: list[Life] = []
    holders.ask(holder, size_bytes, got.append)
    return got


async def test_all_that_want_one_place_share_one_question() -> None:
    """Each gets the answer; a later one asks again."""
    holders, holder = Holders(60_000), Holder()
    got = [ask(holders, holder) for _ in range(3)]
    assert len(holder.asked) == 1
    holder.asked[0](answer(encode_body(HaStatusBody(promised_epoch=7, promised_owner="aa.1"))))
    assert [each[0].has_promised(7, "aa.1") for each in got] == [True] * 3
    holder.asked[0](ConnectionLost("late"))
    assert [len(each) for each in got] == [1] * 3
    ask(holders, holder)
    assert len(holder.asked) == 2
    holders.close()


@pytest.mark.parametrize(
    ("result", "lives"),
    [
        (ConnectionLost("gone"), False),
        (answer(code=3), True),
        (answer(b"garbage"), True),
        (answer(b'{"promisedEpoch":"x"}'), True),
        (answer(b"[" * 100_000), True),
    ],
)
async def test_any_answer_shows_life(result: Response | PocketMQError, lives: bool) -> None:
    """Whatever its bytes; without a status the broker has promised nothing."""
    holders, holder = Holders(60_000), Holder()
    got = ask(holders, holder)
    holder.asked[0](result)
    assert (got[0].lives, got[0].status) == (lives, None)
    assert not got[0].has_promised(1, "aa.1")
    holders.close()


async def test_without_an_answer_the_holder_is_gone() -> None:
    """After the timeout, whether or not the connection reports it."""
    holders, answered = Holders(1), asyncio.Event()
    got: list[Life] = []

    def done(life: Life) -> None:
        got.append(life)
        answered.set()

    holders.ask(Holder(), 1, done)  # type: ignore[arg-type]
    await answered.wait()
    assert got == [Life(False)]


async def test_those_that_wait_are_bounded() -> None:
    """For one holder, in all, and in bytes; answers make room again."""
    holders, first = Holders(60_000), Holder()
    for _ in range(HOLDER_WAITING_MAX):
        ask(holders, first)
    with pytest.raises(HolderBusy):
        ask(holders, first)
    others = [Holder() for _ in range(WAITING_MAX - HOLDER_WAITING_MAX)]
    for each in others:
        ask(holders, each)
    with pytest.raises(HolderBusy):
        ask(holders, Holder())
    first.asked[0](answer())
    ask(holders, Holder())
    for each in others:
        each.asked[0](answer())
    with pytest.raises(HolderBusy):
        ask(holders, Holder(), WAITING_BYTES_MAX)
    holders.close()
    ask(holders, Holder(), WAITING_BYTES_MAX)
    holders.close()


def test_a_master_that_leads_gives_way_to_nobody_under_its_own_name() -> None:
    """It has promised its epoch to itself; once it is fenced, its own promotion may come."""
    leads = HaStatusBody(node_id="aa", promised_epoch=9, promised_owner="aa.1", role="SYNC_MASTER")
    assert not Life(True, leads).gives_way(9, "aa.1")
    fenced = HaStatusBody(node_id="aa", promised_epoch=9, promised_owner="aa.1", role="SYNC_MASTER", fenced_by_epoch=8)
    assert Life(True, fenced).gives_way(9, "aa.1")
    switches = HaStatusBody(node_id="aa", promised_epoch=9, promised_owner="bb.1", role="SYNC_MASTER")
    assert Life(True, switches).gives_way(9, "bb.1")
    assert not Life(True, switches).gives_way(10, "bb.1")
