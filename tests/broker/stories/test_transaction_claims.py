"""False claims about a transaction: another group's half message, a wrong offset, a second delivery."""

from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.common.clock import ManualClock
from pocketmq.common.message_id import offset_msg_id
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader
from pocketmq.remoting.protocol.transaction import ResumeCheckHalfMessageRequestHeader
from pocketmq.store.append_result import PutStatus
from tests.broker.conftest import TIMEOUT_MS, Client, Harness, eventually
from tests.broker.stories.test_transactions import (
    COMMIT,
    FAST,
    GIVEN_UP_TOPIC,
    end,
    end_of,
    half,
    heartbeat,
    pulled,
)
from tests.broker.transaction_fixture import TransactionFixture
from tests.sim.bit_flips import LOG, flipped
from tests.sim.checkers import fresh_disk, sim_config


async def test_no_client_says_that_its_half_message_replaces_another(harness: Harness) -> None:
    """TRAN_PREPARED_QUEUE_OFFSET is for brokers: trusted from a client, it removed another group's half message
    at the next start."""
    app = await harness.broker()
    client = await harness.client(app)
    victim = await half(client, b"victim", group="others")
    record = client.record("T", b"evil", tags="A", properties={"MINE_PREPARED_QUEUE_OFFSET": str(victim[0])})
    record = bytes(record).replace(b"MINE_PREPARED", b"TRAN_PREPARED")
    native = NativeAppendRequestHeader("producers", True, [("T", 0, 1)], TIMEOUT_MS)
    answer = await client.ask(RequestCode.NATIVE_HALF_APPEND, native, len(record).to_bytes(4, "big") + record)
    assert answer.code != 0 or answer.header.results[0][0] != 0
    await half(client, b"typed", TRAN_PREPARED_QUEUE_OFFSET=victim[0])
    await app.stop()
    app = await harness.broker()
    assert app.transactions is not None
    assert [each.producer_group for each in app.transactions.table.pending()] == ["others", "producers"]


async def test_a_decision_that_came_before_is_confirmed_at_its_place_only(broker: BrokerApp, client: Client) -> None:
    """After a power failure another half message may have the queue offset: its end is not the lost one's."""
    place = await half(client)
    assert (await end(client, place, COMMIT)).code == 0
    answer = await end(client, (place[0], place[1] + 999), COMMIT)
    assert (answer.code, answer.remark.partition(" <")[0]) == (ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
    assert (await end(client, place, COMMIT)).code == 0


async def test_a_repeated_decision_waits_for_the_flush_of_the_first(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under SYNC_FLUSH "committed before" is answered once that is on disk, not while it is on its way."""
    app = await harness.broker(store_settings={"flush_disk_type": "SYNC_FLUSH"})
    client = await harness.client(app)
    place = await half(client)
    assert (await end(client, place, COMMIT)).code == 0
    committed_end = app.store.appended_offset
    monkeypatch.setattr(app.store, "acknowledge", lambda end_offset, wait, done: done(PutStatus.FLUSH_DISK_TIMEOUT))
    assert (await end(client, place, COMMIT)).code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert app.store.appended_offset == committed_end


@pytest.mark.parametrize("order", ["decided first", "resumed first", "resumed twice"])
async def test_what_is_resumed_is_delivered_once(harness: Harness, order: str) -> None:
    """A late decision and a resumed half message do not both take effect."""
    app = await harness.broker(transaction_check_max=1, **FAST)
    asked: list[Any] = []
    client = await harness.client(app, lambda channel, request: asked.append(request.header))
    await heartbeat(client, "producers")
    place = await half(client, b"late")
    (copy,) = await pulled(client, GIVEN_UP_TOPIC, 1)
    header = ResumeCheckHalfMessageRequestHeader(offset_msg_id(app.store.store_host, copy.physical_offset))
    if order == "decided first":
        assert (await end(client, place, COMMIT)).code == 0
        assert (await client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)).code != 0
        assert end_of(app, "T") == 1
        return
    asked.clear()
    assert (await client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)).code == 0
    if order == "resumed twice":
        assert (await client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)).code != 0
        return
    assert (await end(client, place, COMMIT)).code == ResponseCode.TRANSACTION_FAILED
    await eventually(lambda: asked)
    again = (asked[0].tran_state_table_offset, asked[0].commit_log_offset)
    assert (await end(client, again, COMMIT, check=True)).code == 0
    assert end_of(app, "T") == 1


def test_one_damaged_half_message_does_not_keep_the_broker_from_starting() -> None:
    """Damage to any byte of one half message after a clean stop: the others are still checked."""
    files = fresh_disk()
    fixture = TransactionFixture(sim_config(), files, ManualClock())
    fixture.half(b"bad")
    fixture.half(b"good")
    (bad, _) = fixture.table.pending()
    fixture.stop()
    for byte in (4, 5, *range(8, 36, 5), *range(36, bad.size_bytes, 7)):
        again = TransactionFixture(
            sim_config(), flipped(files, LOG, (bad.physical_offset + byte) * 8 + byte % 8), ManualClock()
        )
        again.clock.advance_ms(5000)
        again.service.step()
        assert any(b"good" in body for _, body in again.port.asked), byte
        again.stop()


def test_a_clock_that_went_back_holds_nothing_for_ever() -> None:
    """A half message from the future is checked like a new one."""
    files = fresh_disk()
    fixture = TransactionFixture(sim_config(), files, ManualClock(1_800_000_000_000))
    fixture.half(b"future")
    fixture.stop()
    fixture = TransactionFixture(sim_config(), files, ManualClock(1_700_000_000_000))
    assert fixture.round() == []
    assert fixture.round(2000) == [b"future"]
    fixture.stop()
