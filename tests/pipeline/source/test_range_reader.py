"""A task returns or reports as lost every message of its ranges, whenever retention removes segments."""

import asyncio
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pocketmq.client import Message, Producer
from pocketmq.client.admin.admin import Admin
from pocketmq.client.pull.pull_wire import PullResult, PullWire
from pocketmq.pipeline.errors import DataLost
from pocketmq.pipeline.source.planner import Planner
from pocketmq.pipeline.source.positions import QueueRange
from pocketmq.pipeline.source.range_reader import ReadPlan, read_ranges
from pocketmq.remoting.codes import ResponseCode
from pocketmq.store.retention.retention import Reason
from pocketmq.testing import PocketBroker

QUEUES = 2
COUNT = 400
DAY_MS = 86_400_000
names = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    """Start a broker with small segments that only the tests remove."""
    store = {"mapped_file_size_commit_log": 1 << 17, "file_reserved_time": 0}
    with PocketBroker(store={**store, "clean_resource_interval": DAY_MS, "checkpoint_interval": DAY_MS}) as running:
        yield running


def fill(broker: PocketBroker) -> str:
    """Send ``COUNT`` messages of 1,000 bytes, more than four segments of them, to a new topic; return its name."""
    topic = f"topic-{next(names)}"

    async def run() -> None:
        async with Admin(broker.namesrv) as admin:
            await admin.create_topic(topic, queues=QUEUES)
        async with Producer(group="test", namesrv=broker.namesrv) as producer:
            for at in range(0, COUNT, 50):
                tags = ["odd" if number % 2 else "even" for number in range(at, at + 50)]
                await producer.send_batch([Message(topic, b"x" * 1000, tags=tag) for tag in tags])

    asyncio.run(run())
    broker.app.store.show_all()
    broker.app.store.components.checkpointer.checkpoint()  # otherwise retention keeps the log for a recovery
    return topic


def plan_of(broker: PocketBroker, **changed: Any) -> ReadPlan:
    plan = ReadPlan(broker.namesrv, "test", ("queue_id", "queue_offset"), 20_000, 10_000, 300, False, "")
    return replace(plan, **changed)


def read(broker: PocketBroker, topic: str, plan: ReadPlan) -> list[tuple[int, int]]:
    """Return (queue, offset) of every message that one task reads."""
    store = broker.app.store
    ranges = [QueueRange(topic, "pocket", queue, 0, store.max_offset(topic, queue)) for queue in range(QUEUES)]
    batches = list(read_ranges(plan, ranges, {}))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def reported_lost(text: str) -> set[tuple[int, int]]:
    """Return (queue, offset) of the messages reported as lost; each line's count equals the number of its offsets."""
    lost: set[tuple[int, int]] = set()
    for queue, count, first, last in re.findall(
        r"queue (\d+) of pocket: (\d+) messages lost: offsets (\d+) to (\d+)", text
    ):
        part = {(int(queue), offset) for offset in range(int(first), int(last) + 1)}
        assert len(part) == int(count)
        assert not part & lost
        lost |= part
    return lost


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tags", "clean_up_after"),
    [
        ("", 0),
        ("odd", 1),
        ("", 1000),
        *(pytest.param(*each, marks=pytest.mark.soak) for each in (("odd", 0), ("", 1), ("odd", 1000))),
    ],
)
def test_what_retention_removes_between_two_pulls_is_reported(
    broker: PocketBroker,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tags: str,
    clean_up_after: int,
) -> None:
    """Before any pull of a task, with and without a filter. The queues' min offsets follow ``clean_up_after`` pulls
    later: a round of retention removes several segments and then corrects them.
    """
    retention, pull = broker.app.store.retention, PullWire.pull
    pulls, removing_at = 0, 0

    async def remove_and_pull(self: PullWire, *args: Any, **settings: Any) -> list[PullResult]:
        nonlocal pulls
        pulls += 1
        if pulls == removing_at:
            for _ in range(2):
                assert retention._remove_oldest(Reason.MANUAL)
        if removing_at and pulls == removing_at + clean_up_after:
            retention.clean_up()
        return await pull(self, *args, **settings)

    monkeypatch.setattr(PullWire, "pull", remove_and_pull)
    plan, steps, reported = plan_of(broker, tags=tags), 10, 0
    for step in range(1, steps + 1):
        topic = fill(broker)
        pulls, removing_at = 0, 0
        everything = set(read(broker, topic, plan))
        assert len(everything) == (COUNT // 2 if tags else COUNT)
        assert pulls >= steps
        begin = min(broker.app.store.physical_offset(topic, queue, 0) or 0 for queue in range(QUEUES))
        while retention._segments.all[1].base_offset <= begin:
            assert retention._remove_oldest(Reason.MANUAL)  # messages of the topic before
        retention.clean_up()
        pulls, removing_at = 0, step
        capfd.readouterr()
        found = read(broker, topic, plan)
        lost = reported_lost(capfd.readouterr().err)
        assert len(found) == len(set(found)), step
        assert everything - set(found) == lost & everything, step
        assert not lost & set(found), step
        assert lost <= everything or tags, step
        reported += bool(lost)
    assert reported >= steps // 2


@pytest.mark.parametrize("retention_ends", [True, False])
def test_a_strict_task_stops_at_the_first_message_that_is_gone(broker: PocketBroker, retention_ends: bool) -> None:
    """It does so even before the queue's min offset follows the removal."""
    topic = fill(broker)
    retention = broker.app.store.retention
    while retention._remove_oldest(Reason.MANUAL):
        pass
    if retention_ends:
        retention.clean_up()
    with pytest.raises(DataLost, match=rf"{topic} queue 0 of pocket: offsets 0 to \d+ were removed by retention"):
        read(broker, topic, plan_of(broker, fail_on_data_loss=True))


def test_the_first_offset_is_that_of_a_message_that_is_there(broker: PocketBroker) -> None:
    """A query of all messages does not begin with messages removed a moment ago."""
    topic = fill(broker)
    while broker.app.store.retention._remove_oldest(Reason.MANUAL):
        pass
    planner = Planner(broker.namesrv, "test", 60_000)
    try:
        bounds = planner.bounds(planner.queues([topic]))
    finally:
        planner.close()
    assert all(low > broker.app.store.min_offset(*key[::2]) == 0 for key, (low, _) in bounds.items())
    ranges = [QueueRange(*key, *bound) for key, bound in bounds.items()]
    batches = list(read_ranges(plan_of(broker, fail_on_data_loss=True), ranges, {}))
    assert sum(map(len, batches)) == sum(each.count for each in ranges) > 0


def other_answers(monkeypatch: pytest.MonkeyPatch, change: Callable[[PullResult, int], PullResult]) -> None:
    """Change the answer to the second pull, which gets (the answer, the pull's offset)."""
    pull, pulls = PullWire.pull, itertools.count(1)

    async def pull_and_change(self: PullWire, broker: str, positions: Any, *args: Any, **settings: Any) -> Any:
        [result] = await pull(self, broker, positions, *args, **settings)
        return [change(result, positions[0][1]) if next(pulls) == 2 else result]

    monkeypatch.setattr(PullWire, "pull", pull_and_change)


def without_three(result: PullResult, offset: int) -> PullResult:
    """An answer of RocketMQ whose first three records were in a removed file; its min offset follows later."""
    assert result.sizes is not None
    return replace(result, body=result.body[int(result.sizes[:3].sum()) :], sizes=None)


def test_records_that_an_answer_leaves_out_are_reported(
    broker: PocketBroker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocketMQ silently skips missing records in the middle of an answer."""
    topic = fill(broker)
    other_answers(monkeypatch, without_three)
    found = set(read(broker, topic, plan_of(broker)))
    lost = reported_lost(capfd.readouterr().err)
    assert len(lost) == 3
    assert len(found) == COUNT - 3
    assert not found & lost
    other_answers(monkeypatch, without_three)
    with pytest.raises(DataLost, match=r"3 messages at offsets \d+ to \d+ are not there"):
        read(broker, topic, plan_of(broker, fail_on_data_loss=True))


@pytest.mark.parametrize(
    ("code", "next_by", "min_by"),
    [
        pytest.param(ResponseCode.PULL_RETRY_IMMEDIATELY, 0, 50, id="a slave refers to its master"),
        pytest.param(ResponseCode.PULL_NOT_FOUND, 300_000, -1, id="retention removes the file of the queue meanwhile"),
    ],
)
def test_an_answer_that_passes_is_not_a_loss(
    broker: PocketBroker,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    code: ResponseCode,
    next_by: int,
    min_by: int,
) -> None:
    """A broker without the messages may not be the one that has them: the task asks again."""
    topic = fill(broker)

    def nothing(result: PullResult, offset: int) -> PullResult:
        [queue] = result.queues
        queue = replace(queue, code=int(code), next_offset=offset + next_by, min_offset=offset + min_by, count=0)
        return replace(result, queues=[queue], body=memoryview(b""), sizes=np.empty(0, np.int64))

    other_answers(monkeypatch, nothing)
    assert len(set(read(broker, topic, plan_of(broker, wait_ms=60_000)))) == COUNT
    assert "lost" not in capfd.readouterr().err


def test_pulls_grow_while_they_come_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large range takes few round trips; a small one asks for no more than it did."""
    asked: list[int] = []
    pull = PullWire.pull

    async def noted(self: PullWire, *args: Any, **settings: Any) -> list[PullResult]:
        asked.append(settings["max_bytes"])
        return await pull(self, *args, **settings)

    monkeypatch.setattr(PullWire, "pull", noted)
    with PocketBroker() as running:

        async def send() -> None:
            async with Admin(running.namesrv) as admin:
                await admin.create_topic("large", queues=1)
            async with Producer(group="test", namesrv=running.namesrv) as producer:
                for _ in range(12):
                    await producer.send_batch([Message("large", b"x" * 1000) for _ in range(1000)])

        asyncio.run(send())
        for limit, wanted in ((4 << 20, [1 << 20, 2 << 20, 4 << 20]), (1 << 19, [1 << 19])):
            asked.clear()
            plan = plan_of(running, pull_bytes=limit, wait_ms=60_000)
            batches = list(read_ranges(plan, [QueueRange("large", "pocket", 0, 0, 12_000)], {}))
            assert sum(map(len, batches)) == 12_000
            assert sorted(set(asked)) == wanted
