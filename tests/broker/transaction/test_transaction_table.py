"""Open transactions: the table in memory, the op messages, and both read from a log that RocketMQ may have written."""

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.transaction.transaction_records import OP_BODY_BYTES_MAX, HalfRecords, op_bodies, parse_op
from pocketmq.broker.transaction.transaction_table import (
    KEPT_BYTES_MAX,
    ORPHAN_MS,
    OUTCOMES_MAX,
    Crowded,
    Half,
    Outcome,
    TransactionTable,
)
from pocketmq.common.clock import ManualClock
from pocketmq.common.record import encode_properties
from pocketmq.common.record_codec import decode_record, encode_record
from pocketmq.common.record_group import RecordGroup, record_meta, tags_code_of
from tests.broker.transaction_fixture import GROUP, TransactionFixture
from tests.sim.checkers import fresh_disk, sim_config
from tests.store.log_fakes import HOST

OFFSETS = st.lists(st.integers(0, 10**18 - 1), max_size=1500)


def a_half(offset: int) -> Half:
    return Half(offset, offset * 100, 100, 0, GROUP)


@given(OFFSETS)
def test_op_bodies_name_all_offsets_in_order(offsets: list[int]) -> None:
    """Any number of them, in bodies of at most 4,096 bytes."""
    found = list(op_bodies(offsets))
    assert [offset for body in found for offset in parse_op(body)] == offsets
    assert all(0 < len(body) <= OP_BODY_BYTES_MAX for body in found)


def test_an_op_message_of_either_version_is_read() -> None:
    """4.9 writes one offset, 5.3 a list with a comma at its end; other bytes name none."""
    assert (parse_op(b"17"), parse_op(b"17,4,"), parse_op(b""), parse_op(b"x,-1,9"), parse_op(b"9" * 30)) == (
        [17],
        [17, 4],
        [],
        [9],
        [],
    )


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)), st.data())
def test_a_start_misses_nothing_whatever_the_order(order: list[int], ended: set[int], data: st.DataObject) -> None:
    """Halves are added in any order (two send threads), some end meanwhile: those below ``low`` are known and ended,
    and all op messages about the others are at or after its op offset."""
    table = TransactionTable(100)
    table.open_at(0, 0)
    op_of: dict[int, int] = {}
    added: set[int] = set()
    op_offset = 0
    for offset in order:
        table.add(a_half(offset))
        added.add(offset)
        for each in sorted(added & ended - op_of.keys()):
            if data.draw(st.booleans()):
                half = table.claim(each)
                assert half is not None
                assert table.claim(each) is None
                op_of[each] = op_offset
                op_offset += 1
                table.ops_end_at(op_offset)
                table.finish(half, Outcome.COMMITTED)
        low, op_low = table.low()
        assert all(each in op_of for each in range(low))
        assert all(at >= op_low for each, at in op_of.items() if each >= low)
    assert len(table) == 8 - len(op_of)
    assert {half.queue_offset for half in table.pending()} == set(range(8)) - op_of.keys()


def test_the_memory_of_ended_transactions_is_bounded() -> None:
    """The oldest outcome is forgotten; a record beyond the memory for records is read from the log instead."""
    table = TransactionTable(10)
    for offset in range(OUTCOMES_MAX + 2):
        half = a_half(offset)
        table.add(half)
        table.finish(half, Outcome.ROLLED_BACK)
    assert table.outcome(0) is None
    assert table.is_known(0)
    assert table.outcome(OUTCOMES_MAX + 1) == (Outcome.ROLLED_BACK, 100 * (OUTCOMES_MAX + 1))
    large = [Half(offset, 0, 0, 0, GROUP, record=bytes(KEPT_BYTES_MAX // 2)) for offset in range(3)]
    for half in large:
        table.add(half)
    assert [half.record is None for half in large] == [False, False, True]
    table.finish(large[0], Outcome.COMMITTED)
    again = Half(9, 0, 0, 0, GROUP, record=bytes(KEPT_BYTES_MAX // 2))
    table.add(again)
    assert again.record is not None


@given(
    st.binary(max_size=50),
    st.dictionaries(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "x", "REAL_TOPICS"]), st.text("ab cé", min_size=1)),
    st.sampled_from([HOST, bytes(16) + b"\x00\x00\x27\x10"]),
    st.sampled_from([0, 0x101]),
)
def test_a_committed_record_is_the_half_one_elsewhere(
    body: bytes, properties: dict[str, str], born_host: bytes, sys_flag: int
) -> None:
    """Flag, body, CRC, times, hosts and properties stay; topic, queue, type and prepared offset are new; the
    queues and the index get the same as from the scalar path."""
    properties = {**properties, "REAL_TOPIC": "Orders", "REAL_QID": "3"}
    record = encode_record(
        "RMQ_SYS_TRANS_HALF_TOPIC",
        body,
        queue_id=0,
        properties=encode_properties(properties),
        flag=7,
        sys_flag=sys_flag,
        born_timestamp=11,
        born_host=born_host,
        store_timestamp=12,
        store_host=HOST,
        reconsume_times=1,
    )
    moved, meta = HalfRecords(HOST).committed(record, 1234)
    old, new = decode_record(record), decode_record(moved)
    assert (new.topic, new.queue_id, new.sys_flag, new.prepared_offset) == ("Orders", 3, old.sys_flag | 8, 1234)
    for name in ("body", "flag", "born_timestamp", "born_host", "store_host", "properties", "reconsume_times"):
        assert getattr(new, name) == getattr(old, name), name
    assert meta == record_meta("Orders", 3, new.sys_flag, properties)
    assert meta.tags_code == tags_code_of(properties.get("TAGS", ""))
    assert decode_record(HalfRecords(bytes(20)).committed(record, 1)[0]).store_host == bytes(20)


def test_a_store_of_rocketmq_is_taken_over() -> None:
    """It stores a half message again at each check, with the first one's offset: only the last is open, and the end of
    the first ends it; op messages hold lists; the progress is its consumer group's."""
    clock, files = ManualClock(), fresh_disk()
    fixture = TransactionFixture(sim_config(), files, clock)

    def put(topic: str, body: bytes, **properties: str) -> None:
        record = encode_record(
            topic,
            body,
            queue_id=0,
            properties=encode_properties(properties),
            born_host=HOST,
            store_host=bytes(8),
        )
        meta = record_meta(topic, 0, 0, properties)
        assert fixture.store.append(RecordGroup.from_records([record], [meta])).status.is_stored

    half = {"PGROUP": GROUP, "TRAN_MSG": "true", "REAL_TOPIC": "T", "REAL_QID": "0"}
    for body, more in (
        (b"0 checked", {}),
        (b"1 ended", {}),
        (b"2 again 0", {"TRAN_PREPARED_QUEUE_OFFSET": "0", "TRANSACTION_CHECK_TIMES": "1"}),
        (b"3 again 1", {"TRAN_PREPARED_QUEUE_OFFSET": "1", "TRANSACTION_CHECK_TIMES": "1"}),
        (b"4 open", {}),
        (b"5 ended", {}),
    ):
        put("RMQ_SYS_TRANS_HALF_TOPIC", body, **half, **more)
    put("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"1,5,", TAGS="d")
    put("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"no number", TAGS="d")
    fixture.store.close()
    fixture = TransactionFixture(sim_config(), files.after_kill(), clock)
    assert [each.queue_offset for each in fixture.table.pending()] == [2, 4]
    assert sorted(fixture.round()) == [b"2 again 0", b"4 open"]
    fixture.stop()


def test_no_half_message_is_given_up_while_its_producers_are_away() -> None:
    """Only checks that reach a producer count; after file_reserved_time a half message is given up nevertheless."""
    clock = ManualClock()
    fixture = TransactionFixture(sim_config(), fresh_disk(), clock, transaction_check_max=2)
    fixture.half(b"x")
    fixture.port.online = False
    for _ in range(5):
        assert fixture.round() == []
    assert fixture.service.checks_without_producer == 5
    assert fixture.service.wanted_from() == fixture.table.pending()[0].physical_offset
    fixture.port.online = True
    assert [fixture.round(), fixture.round(), fixture.round()] == [[b"x"], [b"x"], []]
    assert [record.body for record in fixture.delivered("TRANS_CHECK_MAX_TIME_TOPIC")] == [b"x"]
    fixture.half(b"old")
    fixture.port.online = False
    fixture.round(73 * 3_600_000)
    assert [record.body for record in fixture.delivered("TRANS_CHECK_MAX_TIME_TOPIC")] == [b"x", b"old"]
    assert fixture.service.wanted_from() == fixture.store.committed_offset
    fixture.stop()


def test_progress_never_runs_ahead_of_the_disk() -> None:
    """It is written once the log up to its end is flushed; before that a crash finds the older one."""
    clock = ManualClock()
    fixture = TransactionFixture(sim_config(), fresh_disk(), clock)
    fixture.half(b"x", b"y")
    fixture.end(fixture.table.pending(), [])
    for _ in range(3):
        fixture.round(6000)
    assert fixture.service.progress.half_offset == -1
    fixture.store.log.flush()
    for _ in range(2):
        fixture.round(6000)
    assert (fixture.service.progress.half_offset, fixture.service.progress.op_offset) == (2, 1)
    assert fixture.offsets.query("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0) == 2
    fixture.stop()


def shared_table(online: set[str]) -> TransactionTable:
    """Return a table of 100, with producers of these groups."""
    return TransactionTable(100, online.__contains__)


def fill(table: TransactionTable, group: str, count: int, store_ms: int = 0) -> int:
    """Add half messages of a group while they are taken; return how many were."""
    first = len(table)
    for at in range(first, first + count):
        if table.refuses(group) is not None:
            return at - first
        table.add(Half(at, 100 * at, 100, store_ms, group))
    return count


def test_a_group_cannot_fill_the_table() -> None:
    """It has a tenth, and more while half of the table is free; then the others still have their tenths."""
    table = shared_table({"a", "b"})
    assert fill(table, "a", 1000) == 50
    assert table.refuses("a") is Crowded.SHARE
    assert fill(table, "b", 1000) == 10
    assert (table.refuses("b"), table.refuses("b", 11)) == (Crowded.SHARE, Crowded.SHARE)
    assert table.of_group("a") == 50
    half = table.claim(0)
    assert half is not None
    table.finish(half, Outcome.COMMITTED)
    assert table.of_group("a") == 49


def test_the_last_fifth_is_for_groups_with_producers() -> None:
    """Whoever invents groups cannot lock out those whose decision can be learned."""
    table = shared_table({"real"})
    assert sum(fill(table, f"invented{number}", 10) for number in range(20)) == 80
    assert table.refuses("more") is Crowded.NO_PRODUCER
    assert fill(table, "real", 1000) == 10
    assert [table.refuses(group) for group in ("real", "more")] == [Crowded.SHARE, Crowded.NO_PRODUCER]


def test_half_messages_without_a_producer_make_room() -> None:
    """The oldest ones above four fifths, once they are a minute old; those of groups with producers stay."""
    online = {"real", *(f"invented{number}" for number in range(10))}
    table = shared_table(online)
    assert fill(table, "real", 10) == 10
    assert sum(fill(table, f"invented{number}", 10, number) for number in range(9)) == 90
    assert (table.refuses("real"), table.orphans(10**9)) == (Crowded.FULL, [])
    online -= {each for each in online if each != "real"}
    assert table.orphans(ORPHAN_MS - 1) == []
    orphans = table.orphans(10**9)
    assert [half.producer_group for half in orphans] == ["invented0"] * 10 + ["invented1"] * 10
    table.finish_all([(half, Outcome.GIVEN_UP) for half in orphans])
    assert (len(table), table.orphans(10**9), table.refuses("real")) == (80, [], Crowded.SHARE)
