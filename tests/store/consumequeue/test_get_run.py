"""A run of the log for several queues gives what reading them one by one gives."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.consumequeue import get_run as module
from pocketmq.store.consumequeue.consume_queue import ConsumeQueue
from pocketmq.store.consumequeue.get import GetMessageStatus, get_message
from pocketmq.store.consumequeue.get_run import BACKLOG_MIN, RunReader
from tests.store.consumequeue.test_get import queue_of
from tests.store.queue_fakes import MemoryLog, Put

MANY = 3 * BACKLOG_MIN


def log_of(queue_ids: Sequence[int], bodies: Sequence[int] = (20,), segment_bytes: int = 1 << 22) -> MemoryLog:
    """Return a log with a record for each queue id in turn; bodies take turns, too."""
    log = MemoryLog(segment_bytes=segment_bytes)
    log.append([Put(queue_id=queue_id, body=bytes(bodies[at % len(bodies)])) for at, queue_id in enumerate(queue_ids)])
    return log


def taking_turns(queues: int, count: int = MANY) -> list[int]:
    return [at % queues for at in range(queues * count)]


def all_of(log: MemoryLog, queues: int) -> list[tuple[ConsumeQueue | None, int]]:
    return [(queue_of(log, queue_id), 0) for queue_id in range(queues)]


@given(
    queues=st.integers(2, 4),
    bodies=st.lists(st.integers(0, 300), min_size=1, max_size=3),
    shares=st.lists(st.integers(1, 5), min_size=4, max_size=4),
    max_messages=st.integers(2, 5 * MANY),
    max_bytes=st.integers(1, 100_000),
    piece_bytes=st.sampled_from([150, 1_000, 1 << 19]),
    seed=st.integers(0, 3),
)
def test_runs_read_every_message_once_and_in_order(
    queues: int,
    bodies: list[int],
    shares: list[int],
    max_messages: int,
    max_bytes: int,
    piece_bytes: int,
    seed: int,
) -> None:
    """Until the backlog is small, whatever the limits; each result is that of the queue alone, cut short."""
    rng = random.Random(seed)
    ids = rng.choices(range(queues), shares[:queues], k=queues * MANY)
    log = log_of(ids, bodies)
    found = [queue_of(log, queue_id) for queue_id in range(queues)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE_BYTES", piece_bytes)
        reader = RunReader(log)
        offsets = [0] * queues
        for turn in range(200):
            order = [(turn + step) % queues for step in range(queues)]
            asked: list[tuple[ConsumeQueue | None, int]] = [(found[at], offsets[at]) for at in order]
            run = reader.get(asked, max_messages=max_messages, max_bytes=max_bytes)
            assert sum(result.count for result in run.values()) <= max_messages
            assert sum(len(result.body) for result in run.values()) <= max_bytes
            for at, result in run.items():
                queue, offset = asked[at]
                alone = get_message(queue, log, offset, max_messages=result.count, max_bytes=1 << 30)
                assert result.status is GetMessageStatus.FOUND
                assert result.sizes.tolist() == alone.sizes.tolist()
                assert result.body.tobytes() == alone.body.tobytes()
                assert (result.next_begin_offset, result.min_offset, result.max_offset, result.physical_end) == (
                    alone.next_begin_offset,
                    alone.min_offset,
                    alone.max_offset,
                    alone.physical_end,
                )
                offsets[order[at]] = result.next_begin_offset


def test_interleaved_queues_share_the_limit_in_log_order() -> None:
    """Each gets as much of the run, and the log is read once, piece by piece."""
    log = log_of(taking_turns(4))
    record_bytes = len(log.data) // (4 * MANY)
    log.reads = 0
    run = RunReader(log).get(all_of(log, 4), max_messages=1 << 20, max_bytes=400 * record_bytes)
    assert {at: result.count for at, result in run.items()} == dict.fromkeys(range(4), 100)
    assert log.reads == 1


@pytest.mark.parametrize(
    ("queue_ids", "why"),
    [
        ([0] * MANY + [1] * MANY, "long stretches of one queue"),
        ([0] * MANY, "one queue"),
        (taking_turns(2, BACKLOG_MIN - 1), "a small backlog"),
        ([], "nothing to read"),
    ],
)
def test_there_is_no_run_where_it_saves_nothing(queue_ids: list[int], why: str) -> None:
    """Then each queue is read by itself."""
    log = log_of(queue_ids or [3])
    assert RunReader(log).get(all_of(log, 2), max_messages=1000, max_bytes=1 << 20) == {}, why


@pytest.mark.parametrize("offset", [MANY - 5, MANY + 1])
def test_a_queue_whose_turn_it_is_comes_before_a_run(offset: int) -> None:
    """With a few messages, or an offset that must be corrected: it would never be read while others are behind."""
    log = log_of(taking_turns(3))
    queues = all_of(log, 3)
    reader = RunReader(log)
    first = [(queues[2][0], offset), *queues[:2]]
    assert reader.get(first, max_messages=1000, max_bytes=1 << 20) == {}
    last = [*queues[:2], (queues[2][0], offset)]
    assert set(reader.get(last, max_messages=1000, max_bytes=1 << 20)) == {0, 1}
    at_end = [(queues[2][0], MANY), (None, 0), *queues[:2]]
    assert set(reader.get(at_end, max_messages=1000, max_bytes=1 << 20)) == {2, 3}


def test_a_queue_far_away_takes_no_part() -> None:
    """Its records would be read from another part of the disk, without a place among the others."""
    log = log_of([*taking_turns(2), *[2] * MANY])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "NEAR_BYTES", 1_000)
        run = RunReader(log).get(all_of(log, 3), max_messages=1000, max_bytes=1 << 20)
    assert set(run) == {0, 1}


def test_damaged_and_removed_records_are_left_to_the_single_queue() -> None:
    """Which says what is wrong with which queue."""
    log = log_of(taking_turns(2))
    reader = RunReader(log)
    queues = all_of(log, 2)
    assert reader.get(queues, max_messages=1000, max_bytes=1 << 20)
    queue = queues[0][0]
    assert queue is not None
    damaged = int(queue.read(50, 1)["offset"][0])
    size = bytes(log.data[damaged : damaged + 4])
    log.data[damaged : damaged + 4] = b"\x00\x00\x00\x07"
    assert reader.get(queues, max_messages=1000, max_bytes=1 << 20) == {}
    log.data[damaged : damaged + 4] = size
    log.min_offset = int(queue.read(1, 1)["offset"][0])
    assert reader.get(queues, max_messages=1000, max_bytes=1 << 20) == {}


def test_buffers_are_used_again() -> None:
    """Also after a run that failed."""
    log = log_of(taking_turns(2))
    reader = RunReader(log)
    for _ in range(3):
        reader.get(all_of(log, 2), max_messages=1000, max_bytes=1 << 20)
    assert len(reader._scratches) == 1
