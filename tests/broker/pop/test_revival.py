"""Copies of messages that were not acknowledged in time."""

from typing import Any

from pocketmq.broker.app import BrokerApp
from pocketmq.store.append_result import AppendResult, PutStatus
from tests.broker.conftest import Client, Harness, eventually
from tests.broker.stories.test_pop import all_popped, committed


async def test_what_cannot_be_copied_waits_and_what_is_gone_is_reported(harness: Harness) -> None:
    """Nothing is acknowledged before its copy is stored; what the log no longer has is skipped."""
    app = await harness.broker()
    client = await harness.client(app)
    await client.put(b"0", b"1")
    revival = app.pop.revival
    assert revival is not None
    append = app.store.append
    refused: list[Any] = []

    def refuse(group: Any, **more: Any) -> AppendResult:
        refused.append(group)
        return AppendResult(PutStatus.SERVICE_NOT_AVAILABLE, error="disk full")

    app.store.append = refuse  # type: ignore[method-assign]
    await all_popped(client, 2, invisible_time=1, count=2)
    await eventually(lambda: len(refused) >= 2)
    assert app.pop.ledger.count == 2
    assert await committed(client) == 0
    assert harness.log.of("pop_revival_waits")
    app.store.append = append  # type: ignore[method-assign]
    await eventually(lambda: revival.revived >= 2)
    await all_popped(client, 2, invisible_time=1)
    read = app.store.read_record
    app.store.read_record = lambda *where: None  # type: ignore[method-assign]
    await eventually(lambda: revival.lost >= 2)
    app.store.read_record = read  # type: ignore[method-assign]
    await eventually(lambda: app.pop.ledger.count == 0)


async def test_a_crash_before_the_copies_are_on_disk_repeats_them(harness: Harness, client: Client) -> None:
    """The original stays in flight until then."""
    app: BrokerApp = await harness.broker(name="other", broker_name="broker-b")
    client = await harness.client(app)
    app.store.make_durable = lambda: 0  # type: ignore[method-assign]
    await client.put(b"0")
    await all_popped(client, 1, invisible_time=1)
    revival = app.pop.revival
    assert revival is not None
    await eventually(lambda: revival.revived == 1)
    if app.store.flushed_offset < app.store.appended_offset:
        assert app.pop.ledger.count == 1
        assert await committed(client) == 0
