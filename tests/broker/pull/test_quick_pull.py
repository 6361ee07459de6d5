"""Pulls that the loop serves itself, with the pull thread's answers as their oracle."""

import asyncio
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.pull.quick_pull import QuickPull
from pocketmq.broker.request.request_task import Drain, Task
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.common.topics import Perm, TopicConfig
from tests.broker.conftest import Client, Harness, eventually, records_of


class Oracle:
    """Watches a broker's ``QuickPull``: the pulls it held, and its answers beside those of ``NativePull``."""

    def __init__(self, app: BrokerApp, patch: pytest.MonkeyPatch) -> None:
        self.held = 0
        self.answers: list[tuple[bytes, bytes]] = []
        self.left: list[int] = []
        """Offsets of woken pulls that were left to the pull thread."""
        self.pair = app.request_table.executor("PullMessageThread")
        native: Any = self.pair.processor.native  # type: ignore[attr-defined]
        hold, answer = QuickPull.hold, QuickPull.answer

        def held(quick: QuickPull, task: Task) -> bool:
            done = hold(quick, task)
            self.held += done
            return done

        def answered(quick: QuickPull, task: Task, offset: int, tags_code: int, record: bytes) -> Any:
            buffers = answer(quick, task, offset, tags_code, record)
            if buffers is None:
                self.left.append(offset)
                return None
            again = Task(task.connection, task.request, 0, task.size_bytes)
            drain = Drain([again])
            native.serve(again, drain)
            self.answers.append((b"".join(buffers), b"".join(drain.answers[0][1])))
            return buffers

        patch.setattr(QuickPull, "hold", held)
        patch.setattr(QuickPull, "answer", answered)
        self.pair.here = app._running.pulls.quick.hold  # type: ignore[union-attr]


@pytest.fixture
def oracle(broker: BrokerApp, monkeypatch: pytest.MonkeyPatch) -> Oracle:
    """The oracle of ``broker``."""
    return Oracle(broker, monkeypatch)


async def waiting(broker: BrokerApp, client: Client, *queues: Any, **fields: Any) -> Any:
    """Start a pull and wait until it is held."""
    before = broker.pulls_held
    pull = asyncio.ensure_future(client.native_pull(*queues, suspend_ms=15_000, **fields))
    await eventually(lambda: broker.pulls_held == before + 1)
    return pull


async def first(broker: BrokerApp, client: Client) -> None:
    """Make queue 0 of T, which the short path then knows, and the group."""
    await client.put(b"first")
    await client.pull_bodies()


async def test_a_waiting_pull_gets_the_record_just_stored(
    broker: BrokerApp, client: Client, harness: Harness, oracle: Oracle
) -> None:
    """Held and answered by the loop alone: byte for byte the pull thread's answer, one for each waiting consumer."""
    other = await harness.client(broker)
    await first(broker, client)
    await eventually(lambda: not any(oracle.pair.busy))  # a drain is counted after its answers have left
    drains = oracle.pair.drains
    for offset, body in enumerate((b"", b"x", b"y" * 5_000, b"z" * 60_000), 1):
        pulls = [await waiting(broker, each, ("T", 0, offset)) for each in (client, other)]
        sender = await harness.client(broker)
        await sender.put(body)
        for pull in pulls:
            answer = await pull
            assert answer.header.results == [(0, offset + 1, 0, offset + 1, 1)]
            assert [record.body for record in records_of(answer)] == [body]
    assert oracle.held == len(oracle.answers) == 8
    assert all(quick == native for quick, native in oracle.answers)
    assert oracle.pair.drains == drains


async def test_tags_are_compared_as_in_the_queue(
    broker: BrokerApp, client: Client, harness: Harness, oracle: Oracle
) -> None:
    """A message with another tag does not answer the pull; it waits behind that message, and gets the next."""
    await first(broker, client)
    sender = await harness.client(broker)
    pull = await waiting(broker, client, ("T", 0, 1), expression="a || Übergröße")
    await sender.put(b"no", tags="b")
    await eventually(lambda: oracle.left == [1] and broker.pulls_held == 1)
    assert not pull.done()
    await sender.put(b"yes", tags="Übergröße")
    answer = await pull
    assert [record.body for record in records_of(answer)] == [b"yes"]
    assert answer.header.results[0][1] == 3
    pull = await waiting(broker, client, ("T", 0, 3), expression="a || Übergröße")
    await sender.put(b"at once", tags="Übergröße")
    assert [record.body for record in records_of(await pull)] == [b"at once"]
    assert all(quick == native for quick, native in oracle.answers)
    assert oracle.answers


async def test_statistics_count_what_the_loop_serves(
    broker: BrokerApp, client: Client, harness: Harness, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages, bytes, found and missed pulls, requests of the pair: as if the pull thread had served them."""
    await first(broker, client)
    counters: Any = oracle.pair.processor.counters  # type: ignore[attr-defined]
    sender = await harness.client(broker)
    totals, served = counters.totals, oracle.pair.served
    before = totals.get, totals.get_bytes, totals.get_found_requests, totals.get_miss_requests
    oracle_hold, quick = oracle.pair.here, broker._running.pulls.quick  # type: ignore[union-attr]
    counted: list[tuple[int, ...]] = []
    got: list[tuple[Any, ...]] = []
    monkeypatch.setattr(BrokerCounters, "group_got", lambda _, *values: got.append(values))
    for offset, on_loop in ((1, True), (2, False)):
        oracle.pair.here = oracle_hold if on_loop else None
        broker._running.pulls.quick = quick if on_loop else None  # type: ignore[union-attr]
        pull = await waiting(broker, client, ("T", 0, offset))
        oracle.answers.clear()
        await sender.put(b"counted")
        await pull
        after = totals.get, totals.get_bytes, totals.get_found_requests, totals.get_miss_requests
        counted.append(tuple(b - a for a, b in zip(before, after, strict=True)))
        before = after
        if on_loop:  # the oracle itself has read the message once more
            counted[0] = counted[0][0] // 2, counted[0][1] // 2, counted[0][2] // 2, counted[0][3]
    assert counted[0] == counted[1]
    assert counted[0][0] == counted[0][2] == counted[0][3] == 1
    await eventually(lambda: oracle.pair.served - served == 4)
    size = got[0][-1]
    assert sorted(got) == [("T", "group", 0, next_offset, 1, size) for next_offset in (2, 2, 3)]


async def test_other_pulls_go_to_the_pull_thread(
    broker: BrokerApp, client: Client, harness: Harness, oracle: Oracle
) -> None:
    """Several queues, a filter by properties, a large record, several records at once."""
    await first(broker, client)
    await client.put(b"first", queue_id=1)
    await eventually(lambda: broker.store.max_offset("T", 1) == 1)
    sender = await harness.client(broker)
    pull = await waiting(broker, client, ("T", 0, 1), ("T", 1, 1))
    await sender.put(b"one of two queues")
    assert [record.body for record in records_of(await pull)] == [b"one of two queues"]
    assert oracle.held == 0
    pull = await waiting(broker, client, ("T", 0, 2))
    await sender.put(b"l" * 70_000)
    assert len(records_of(await pull)) == 1
    pull = await waiting(broker, client, ("T", 0, 3))
    await sender.put(b"two", b"at once")
    assert [record.body for record in records_of(await pull)] == [b"two", b"at once"]
    assert oracle.held == 2
    assert oracle.answers == []


async def test_what_refuses_a_pull_refuses_a_waiting_one(
    broker: BrokerApp, client: Client, harness: Harness, oracle: Oracle
) -> None:
    """A topic that may no longer be read: the pull thread words the refusal, whether the pull waits or comes."""
    await first(broker, client)
    sender = await harness.client(broker)
    pull = await waiting(broker, client, ("T", 0, 1))
    broker.topics.put(TopicConfig(topic_name="T", perm=Perm.WRITE))
    await sender.put(b"secret")
    answer = await pull
    assert answer.header.results[0][0] == 16
    assert not answer.body
    assert oracle.answers == []
    assert (await client.native_pull(("T", 0, 2), suspend_ms=15_000)).header.results[0][0] == 16


async def test_a_stopping_broker_answers_what_the_loop_holds(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer that nothing is there, made only now."""
    app = await harness.broker(name="stopping")
    oracle = Oracle(app, monkeypatch)
    client = await harness.client(app)
    await first(app, client)
    pull = await waiting(app, client, ("T", 0, 1))
    assert oracle.held == 1
    app._running.pulls.close()  # type: ignore[union-attr]
    assert (await pull).header.results == [(19, 1, 0, 1, 0)]
