"""Half messages on a store that a RocketMQ broker has used meanwhile."""

import msgspec

from pocketmq.broker.transaction.transaction_recovery import recover
from pocketmq.broker.transaction.transaction_service import TransactionService
from pocketmq.broker.transaction.transaction_table import TransactionTable
from pocketmq.common.clock import ManualClock
from pocketmq.common.events import NullLog
from pocketmq.common.record import encode_properties
from pocketmq.common.record_codec import encode_record
from pocketmq.common.record_group import RecordGroup, record_meta
from tests.broker.transaction_fixture import GROUP, TransactionFixture
from tests.sim.checkers import fresh_disk, sim_config
from tests.store.log_fakes import HOST

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OPERATIONS = "RMQ_SYS_TRANS_OP_HALF_TOPIC"


def put(fixture: TransactionFixture, topic: str, body: bytes, **properties: str) -> None:
    record = encode_record(
        topic, body, queue_id=0, properties=encode_properties(properties), born_host=HOST, store_host=bytes(8)
    )
    meta = record_meta(topic, 0, 0, properties)
    assert fixture.store.append(RecordGroup.from_records([record], [meta])).status.is_stored


def half(fixture: TransactionFixture, body: bytes, unique_key: str, **more: str) -> None:
    kept = {"PGROUP": more.pop("group", GROUP), "TRAN_MSG": "true", "REAL_TOPIC": "T", "REAL_QID": "0"}
    put(fixture, HALF, body, **{**kept, **more}, UNIQ_KEY=unique_key)


def test_a_half_message_that_rocketmq_stored_again_is_open_once() -> None:
    """Its copies have the same unique key and a number of checks; another group's message with that key stays."""
    clock, files = ManualClock(), fresh_disk()
    fixture = TransactionFixture(sim_config(), files, clock)
    half(fixture, b"0", "A")
    half(fixture, b"1", "B")
    half(fixture, b"2", "A", group="another")
    half(fixture, b"3", "A", TRANSACTION_CHECK_TIMES="1")
    half(fixture, b"4", "B")  # no copy: a client sent a key twice
    half(fixture, b"5", "A", TRANSACTION_CHECK_TIMES="2")
    fixture.store.close()
    fixture = TransactionFixture(sim_config(), files.after_kill(), clock)
    assert [each.queue_offset for each in fixture.table.pending()] == [1, 2, 4, 5]
    fixture.stop()


def test_where_rocketmqs_group_is_ahead_of_us_it_counts() -> None:
    """RocketMQ passed half messages of ours without an op message, because it stored them again."""
    clock, files = ManualClock(), fresh_disk()
    fixture = TransactionFixture(sim_config(), files, clock)
    for number in range(4):
        half(fixture, b"%d" % number, f"K{number}")
    fixture.store.close()
    root = fixture.store.config.store_path_root_dir
    after = files.after_kill()
    progress = {"halfOffset": 0, "opOffset": 0, "checks": {}}
    after.replace(f"{root}/pocketmq/transactionProgress.json", msgspec.json.encode(progress))
    again = TransactionFixture(sim_config(), after, clock)
    assert [each.queue_offset for each in again.table.pending()] == [0, 1, 2, 3]
    again.offsets.commit("CID_RMQ_SYS_TRANS", HALF, 0, 3)
    again.offsets.commit("CID_RMQ_SYS_TRANS", OPERATIONS, 0, 0)
    table = TransactionTable(10)
    arguments = again.writer, again.port, again.offsets, after, clock, again.log
    TransactionService(again.config, again.store, table, *arguments).open()
    assert [each.queue_offset for each in table.pending()] == [3]
    again.store.close()


def test_the_topics_of_open_transactions_are_asked_for() -> None:
    """A promoted slave may not know one that has no other message: its producers would never come for a check."""
    fixture = TransactionFixture(sim_config(), fresh_disk(), ManualClock())
    half(fixture, b"0", "A")
    half(fixture, b"1", "B", REAL_TOPIC="Late", REAL_QID="3")
    fixture.store.show_all()
    needed: list[tuple[str, int]] = []
    table = TransactionTable(10, lambda group: True)
    recover(fixture.store, table, 0, 0, {}, NullLog(), lambda topic, queue_id, offset: needed.append((topic, queue_id)))
    assert len(table) == 2
    assert needed == [("T", 0), ("Late", 3)]
    fixture.stop()
