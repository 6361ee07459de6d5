"""Times of requests by their code: every request counts once, in RocketMQ's buckets, and a peer makes no entry."""

from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.broker.stats.rpc_times import BOUNDS_MS, OTHER, RpcTimes
from pocketmq.remoting.codes import RequestCode

MS = 1_000_000


def timing(codes: list[int], created_ns: int, *, oneway: bool = False) -> Any:
    tasks = [
        SimpleNamespace(request=SimpleNamespace(code=code, oneway=oneway), created_ns=created_ns) for code in codes
    ]
    return ("pair", tasks, created_ns, [], created_ns)


@pytest.mark.parametrize("count", [1, 2, 4, 5, 17, 1000])
def test_every_request_counts_once(count: int) -> None:
    times = RpcTimes()
    times.finished(timing([RequestCode.HEART_BEAT] * count, 0), 2 * MS)
    ((code, counts, sum_ns),) = times.rows()
    assert (code, sum(counts), counts[1], sum_ns) == (RequestCode.HEART_BEAT, count, count, count * 2 * MS)


def test_a_small_drain_of_two_codes_counts_each_by_its_own() -> None:
    times = RpcTimes()
    times.finished(timing([RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT, RequestCode.PULL_MESSAGE], 0), MS)
    found = {code: sum(counts) for code, counts, _ in times.rows()}
    assert found == {RequestCode.PULL_MESSAGE: 2, RequestCode.HEART_BEAT: 1}


def test_a_oneway_request_has_no_answer_and_no_time() -> None:
    times = RpcTimes()
    times.finished(timing([RequestCode.UPDATE_CONSUMER_OFFSET], 0, oneway=True), MS)
    assert times.rows() == []


def test_an_object_that_stands_for_a_request_counts_as_it() -> None:
    times = RpcTimes()
    pair, tasks, *rest = timing([RequestCode.SEND_MESSAGE_V2], 0)
    times.finished((pair, [SimpleNamespace(task=task) for task in tasks], *rest), MS)
    assert times.rows()[0][0] == RequestCode.SEND_MESSAGE_V2


def test_a_bound_belongs_to_its_bucket() -> None:
    """``le`` is inclusive."""
    times = RpcTimes()
    for bound in BOUNDS_MS:
        times.add(RequestCode.HEART_BEAT, bound * MS, 1)
        times.add(RequestCode.HEART_BEAT, bound * MS + 1, 1)
    ((_, counts, _),) = times.rows()
    assert counts == [1, *[2] * (len(BOUNDS_MS) - 1), 1]


def test_codes_of_a_peer_s_making_are_one() -> None:
    times = RpcTimes()
    for code in range(1_000_000, 1_001_000):
        times.add(code, MS, 1)
    ((code, counts, sum_ns),) = times.rows()
    assert (code, sum(counts), sum_ns) == (OTHER, 1000, 1000 * MS)
