"""Half records turned into messages together: the same as one by one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.transaction.transaction_commits import COLUMNS_MIN, TAILS_MAX, CommitGroup, CommitTails
from pocketmq.broker.transaction.transaction_records import REMEMBERED_BYTES_MAX, HalfIllegal, HalfRecords, op_records
from pocketmq.common.errors import CorruptRecord
from pocketmq.common.record import encode_properties
from pocketmq.common.record_codec import encode_record
from pocketmq.common.record_group import RecordGroup
from tests.store.log_fakes import HOST

HOST_V6 = bytes(range(20))


def half_record(
    number: int,
    body: bytes = b"body",
    more: dict[str, str] | None = None,
    *,
    born_host: bytes = HOST,
    store_host: bytes = HOST,
    queue_id: str = "3",
    topic: str = "Orders",
    half_topic: str = "RMQ_SYS_TRANS_HALF_TOPIC",
    uniq_key: str | None = None,
) -> bytes:
    """Return a half record like those of our clients' sends, or nearly."""
    properties = {"UNIQ_KEY": f"{number:032X}" if uniq_key is None else uniq_key, **(more or {})}
    properties |= {"TRAN_MSG": "true", "PGROUP": "g", "REAL_TOPIC": topic, "REAL_QID": queue_id}
    return encode_record(
        half_topic,
        body,
        queue_id=0,
        properties=encode_properties({name: value for name, value in properties.items() if value}),
        sys_flag=1,
        born_timestamp=11,
        born_host=born_host,
        store_timestamp=12,
        store_host=store_host,
        reconsume_times=1,
    )


def assert_same(halves: list[bytes], store_host: bytes = HOST, tails: CommitTails | None = None) -> None:
    """Make messages together and one by one, with their op messages, and compare every column."""
    one_by_one = HalfRecords(store_host)
    tails = tails or CommitTails(HalfRecords(store_host))
    together = CommitGroup(tails, store_host)
    for number, record in enumerate(halves):
        together.add(record, 1000 + number)
    ops = op_records(range(len(halves)), 5, store_host)
    messages = [one_by_one.committed(record, 1000 + number) for number, record in enumerate(halves)]
    records, metas = zip(*messages, *ops, strict=True)
    expected, group = RecordGroup.from_records(records, metas), together.group(ops)
    assert len(together) == len(halves)
    assert together.size_bytes == sum(len(record) for record, _ in messages)
    assert group.buffer.tobytes() == expected.buffer.tobytes()
    assert group.starts.tolist() == expected.starts.tolist()
    assert group.sizes.tolist() == expected.sizes.tolist()
    assert group.tags_codes.tolist() == expected.tags_codes.tolist()
    assert group.sections == expected.sections
    assert group.keys == expected.keys
    assert group.other_uniq_keys == expected.other_uniq_keys
    assert (group.uniq_keys is None) == (expected.uniq_keys is None)
    if group.uniq_keys is not None and expected.uniq_keys is not None:
        assert group.uniq_keys.tolist() == expected.uniq_keys.tolist()
    assert group.indexed is None
    assert group.in_queue is None


halves = st.builds(
    half_record,
    st.integers(0, 1 << 60),
    st.binary(max_size=40),
    st.dictionaries(st.sampled_from(["TAGS", "KEYS", "CLUSTER", "MYKEYS", "x"]), st.text("ab c", max_size=5)),
    born_host=st.sampled_from([HOST, HOST, HOST_V6]),
    store_host=st.sampled_from([HOST, HOST, HOST_V6]),
    queue_id=st.sampled_from(["0", "3", "007"]),
    topic=st.sampled_from(["Orders", "T"]),
    half_topic=st.sampled_from(["RMQ_SYS_TRANS_HALF_TOPIC"] * 3 + ["Another"]),
    uniq_key=st.sampled_from([None, None, None, "", "short", "Ä" * 16, "x" * 31 + "-"]),
)


@given(st.lists(halves, min_size=1, max_size=12), st.sampled_from([HOST, HOST_V6]))
def test_together_is_one_by_one(records: list[bytes], store_host: bytes) -> None:
    """For any half record: bytes, queues, tags, unique ids and keys are those of the scalar path."""
    assert_same(records, store_host)


@pytest.mark.parametrize("count", [1, COLUMNS_MIN - 1, COLUMNS_MIN, 200])
@pytest.mark.parametrize("store_host", [HOST, HOST_V6])
def test_many_like_ones(count: int, store_host: bytes) -> None:
    """Headers written one by one and all together, bodies of every length, keys of their own, an odd one among them."""
    hosts: dict[str, Any] = {"born_host": store_host, "store_host": store_host}
    records = [
        half_record(number, bytes(number % 7), {"TAGS": "a", "KEYS": f"k{number}"}, queue_id=str(number % 3), **hosts)
        for number in range(count)
    ]
    tails = CommitTails(HalfRecords(store_host))
    assert_same(records, store_host, tails)
    assert_same([*records, half_record(9, uniq_key="short", **hosts), *records], store_host, tails)
    assert_same([*records, half_record(9, half_topic="Another", **hosts), *records], store_host, tails)


def test_an_illegal_half_record_leaves_the_group_as_it_was() -> None:
    """A forbidden target, a damaged record, a truncated one: an error, and the others are added."""
    good = half_record(1)
    for bad, error in (
        (half_record(2, topic="SCHEDULE_TOPIC_XXXX"), HalfIllegal),
        (half_record(2, queue_id="x"), HalfIllegal),
        (good[:-3], CorruptRecord),
        (good[:20], CorruptRecord),
        (b"", CorruptRecord),
        (good[:84] + b"\x7f\xff\xff\xff" + good[88:], CorruptRecord),
    ):
        tails = CommitTails(HalfRecords(HOST))
        group = CommitGroup(tails, HOST)
        group.add(good, 1)
        with pytest.raises(error):
            group.add(bad, 2)
        group.add(good, 3)
        assert len(group) == len(group.group([]).sizes) == 2


def test_only_targets_that_properties_alone_decide_are_remembered() -> None:
    """Keys are cut out first; a second unique id, or more names than fit, cost the scalar path, not memory."""
    tails = CommitTails(HalfRecords(HOST))
    for number in range(50):
        assert_same([half_record(number, more={"KEYS": f"k{number}"})], tails=tails)
    assert len(tails.known) == 1
    assert_same([half_record(1, more={"x": "y", "MYKEYS": "1"})] * 2, tails=tails)
    assert len(tails.known) == 1
    group = CommitGroup(tails, HOST)
    for number in range(TAILS_MAX + 10):
        group.add(half_record(number, more={"TAGS": str(number)}), number)
    assert len(tails.known) <= TAILS_MAX


def test_long_properties_and_tags_are_not_remembered() -> None:
    """Thousands of them would take more memory than all else; they are read each time."""
    tails = CommitTails(HalfRecords(HOST))
    long = "x" * REMEMBERED_BYTES_MAX
    assert_same([half_record(1, more={"TAGS": "y" + long}), half_record(2, more={"a": long})] * 2, tails=tails)
    assert not [tail for tail in tails.known if len(tail) > REMEMBERED_BYTES_MAX]
    assert not [tags for tags in tails.records._tags_codes if len(tags) > REMEMBERED_BYTES_MAX]
    assert_same([half_record(3, more={"TAGS": "short"})] * 2, tails=tails)
    assert b"short" in tails.records._tags_codes
