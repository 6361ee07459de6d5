"""The check of native appends: scalar and columnar give the same verdicts and the same groups."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.errors import MessageIllegal
from pocketmq.common.message import Message
from pocketmq.common.plain_check import (
    CheckedSections,
    PlainChecker,
    PlainRules,
    check_plain,
    check_plain_alike,
    check_plain_columns,
    check_plain_scalar,
)
from pocketmq.common.record import body_at, decode_properties
from pocketmq.common.record_codec import PlainRecordBuilder, decode_record, encode_record
from pocketmq.common.record_columns import patch
from pocketmq.common.record_group import RecordGroup, record_meta, sections_of

Counted = tuple[str, int, int]
"""Topic, queue id, records."""
RULES = {4: PlainRules(cluster=b"c", message_size_max=500), 6: PlainRules(cluster=b"c", message_size_max=500, family=6)}


def array(data: bytes) -> Any:
    """Return writable private memory with these bytes."""
    return np.frombuffer(bytearray(data), np.uint8)


def columns_of(checked: CheckedSections) -> Any:
    """Return the verdicts and all comparable data of the group."""
    if checked.group is None:
        return checked.errors, None

    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, np.ndarray) else value

    return checked.errors, {name: plain(getattr(checked.group, name)) for name in RecordGroup.__slots__}


def both(
    made: list[bytes], sections: list[Counted], rules: PlainRules, checkers: list[PlainChecker] | None = None
) -> CheckedSections:
    """Check in all ways, with a cold and a warm cache, compare all, and return the result of the scalar check."""
    cold, warm = checkers or [PlainChecker(rules), PlainChecker(rules)]
    buffer = b"".join(made)
    sizes = np.array([len(record) for record in made], ">u4")
    scalar = check_plain_scalar(array(buffer), sizes, sections_of(sections), cold)
    columns = check_plain_columns(array(buffer), sizes, sections_of(sections), warm)
    assert columns_of(columns) == columns_of(scalar)
    again = check_plain_scalar(array(buffer), sizes, sections_of(sections), warm)
    assert columns_of(again) == columns_of(scalar)
    again = check_plain_columns(array(buffer), sizes, sections_of(sections), cold)
    assert columns_of(again) == columns_of(scalar)
    for checker in (PlainChecker(rules), warm):
        alike = check_plain_alike(array(buffer), sizes.astype(np.int64), sections_of(sections), checker)
        assert alike is None or columns_of(alike) == columns_of(scalar)
    chosen = check_plain(array(buffer), sizes, sections_of(sections), warm)
    assert columns_of(chosen) == columns_of(scalar)
    return scalar


VALUE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=5)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """A message of a shape that producers send."""
    return Message(
        "T",
        draw(st.binary(max_size=20)),
        tags=draw(st.sampled_from(["", "A", "BB", "é"])),
        keys=draw(st.sampled_from(["", "k1", "k2", "k 3", "schlüssel"])),
        properties=draw(st.sampled_from([None, {"a": "b"}, {"xKEYS": "y"}, {"ü": "KEYS"}])),
        flag=draw(st.integers(-5, 5)),
    )


@st.composite
def appends(draw: st.DrawFn) -> tuple[int, list[bytes], list[Counted]]:
    """A host family, records and their sections, several queues and topics."""
    family = draw(st.sampled_from([4, 6]))
    builder = PlainRecordBuilder("c", family)
    made: list[bytes] = []
    sections: list[Counted] = []
    templates = draw(st.lists(messages(), min_size=1, max_size=4))
    for number in range(draw(st.integers(1, 3))):
        topic, queue_id = draw(st.sampled_from(["T", "Topic-2"])), draw(st.integers(0, 3))
        count = draw(st.sampled_from([1, 2, 30]))
        for index in range(count):
            message = templates[index % len(templates)]
            message.topic = topic
            uniq_key = (
                draw(st.sampled_from([b"%032X" % (number * 100 + index), b"A" * 56])) if index < 2 else b"%032X" % index
            )
            made.append(
                builder.build(message, queue_id, uniq_key, 1_700_000_000_000, draw(st.sampled_from([0, 1, 0x303])))
            )
        sections.append((topic, queue_id, count))
    return family, made, sections


@given(appends())
def test_what_the_builder_makes_is_good(append: tuple[int, list[bytes], list[Counted]]) -> None:
    """Every record passes in both ways, and the group has the values that the scalar codec decodes."""
    family, made, sections = append
    checked = both(made, sections, RULES[family])
    assert checked.errors == [None] * len(sections)
    group = checked.group
    assert group is not None
    assert group.buffer.tobytes() == b"".join(made)
    records = [decode_record(data) for data in made]
    metas = [record_meta(one.topic, one.queue_id, one.sys_flag, decode_properties(one.properties)) for one in records]
    assert columns_of(CheckedSections([], RecordGroup.from_records(made, metas, group.sections))) == columns_of(
        CheckedSections([], group)
    )
    host = bytes(20 if family == 6 else 8)
    group.queue_offsets = np.arange(len(made), dtype=np.int64)
    group.physical_offsets = group.starts + 5
    group.store_timestamp = 9
    patch(group, group.queue_offsets, group.physical_offsets, 9, host)
    stored = RecordGroup.from_log(group.buffer.copy())
    for name in set(RecordGroup.__slots__) - {"sections"}:  # the log joins neighbors of one queue
        assert np.array_equal(getattr(stored, name), getattr(group, name)), name


@given(appends(), st.data())
def test_one_changed_byte_gives_one_verdict(
    append: tuple[int, list[bytes], list[Counted]], data: st.DataObject
) -> None:
    """Scalar and columnar check agree about any damage; damage in a checked field is refused."""
    family, made, sections = append
    index = data.draw(st.integers(0, len(made) - 1))
    record = bytearray(made[index])
    body = body_at(record[39])
    hosts = set(range(48, body - 16))
    free = {*range(16, 36), *range(40, 48)} | hosts  # flag, offsets, born time; the broker writes the rest
    checked_fields = [at for at in range(body + struct.unpack_from(">i", record, body - 4)[0]) if at not in free]
    anywhere = data.draw(st.booleans())
    at = data.draw(st.integers(0, len(record) - 1) if anywhere else st.sampled_from(checked_fields))
    flip = data.draw(st.integers(1, 255))
    if at in (38, 39) and not anywhere:
        flip |= {38: 0x08, 39: 0x04}[at]  # the client may use the other bits of the sysFlag
    record[at] ^= flip
    made[index] = bytes(record)
    result = both(made, sections, RULES[family])
    if not anywhere:
        ((refused, error),) = [(number, text) for number, text in enumerate(result.errors) if text is not None]
        first = sum(count for _, _, count in sections[:refused])
        assert error.startswith(f"record {index - first}: ")


@given(appends(), st.data())
def test_cut_and_swapped_records_give_one_verdict(
    append: tuple[int, list[bytes], list[Counted]], data: st.DataObject
) -> None:
    """A record with missing or extra bytes at its end, or of another queue, is refused in both ways."""
    family, made, sections = append
    index = data.draw(st.integers(0, len(made) - 1))
    cut = data.draw(st.integers(1, len(made[index])))
    made[index] = data.draw(st.sampled_from([made[index][:-cut], made[index] + bytes(cut), bytes(cut), b""]))
    result = both(made, sections, RULES[family])
    assert sum(error is not None for error in result.errors) == 1


def record(**changes: Any) -> bytes:
    """Return a plain record of ``T`` queue 0, with changes."""
    fields: dict[str, Any] = {
        "topic": "T",
        "body": b"body",
        "queue_id": 0,
        "properties": b"UNIQ_KEY\x01" + b"0" * 32 + b"\x02TAGS\x01A\x02CLUSTER\x01c\x02",
        "born_host": bytes(8),
        "store_host": bytes(8),
    }
    return encode_record(**fields | changes)


UNIQ = b"UNIQ_KEY\x01" + b"0" * 32 + b"\x02"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"queue_id": 1}, "queue id 1"),
        ({"topic": "U"}, "topic differs"),
        ({"topic": "TT"}, "topic differs"),
        ({"topic": "t" * 128}, "magic"),
        ({"sys_flag": 4}, "sysFlag 0x4"),
        ({"sys_flag": 8}, "sysFlag 0x8"),
        ({"sys_flag": 0x80}, "sysFlag 0x80"),
        ({"born_host": bytes(20), "store_host": bytes(20)}, "sysFlag 0x30"),
        ({"store_host": bytes(20)}, "sysFlag 0x20"),
        ({"reconsume_times": 1}, "reconsume times 1"),
        ({"prepared_offset": 1}, "prepared offset 1"),
        ({"body": bytes(501)}, "body of 501 bytes"),
        ({"properties": b""}, "CLUSTER is missing"),
        ({"properties": UNIQ}, "CLUSTER is missing"),
        ({"properties": UNIQ + b"CLUSTER\x01d\x02"}, "another cluster"),
        ({"properties": UNIQ + b"CLUSTER\x01c\x02WAIT\x01true\x02"}, "WAIT"),
        ({"properties": UNIQ + b"DELAY\x011\x02CLUSTER\x01c\x02"}, "DELAY"),
        ({"properties": UNIQ + b"CLUSTER\x01c\x02TIMER_ANY\x011\x02"}, "TIMER_ANY"),
        ({"properties": b"TRAN_MSG\x01true\x02" + UNIQ + b"CLUSTER\x01c\x02"}, "TRAN_MSG"),
        ({"properties": UNIQ + b"CLUSTER\x01c\x02REAL_TOPIC\x01x\x02"}, "REAL_TOPIC"),
        ({"properties": UNIQ + b"CLUSTER\x01c\x02REAL_QID\x011"}, "REAL_QID"),
        ({"properties": UNIQ + UNIQ + b"CLUSTER\x01c\x02"}, "UNIQ_KEY is given twice"),
        ({"properties": UNIQ + b"KEYS\x01a\x02KEYS\x01b\x02CLUSTER\x01c\x02"}, "KEYS is given twice"),
        ({"properties": UNIQ + b"CLUSTER\x01c\x02CLUSTER\x01c\x02"}, "CLUSTER is given twice"),
        ({"properties": UNIQ + b"CLUSTER\x01c\x02a\x01\xff\x02"}, "not UTF-8"),
        ({"properties": UNIQ + b"KEYS\x01\xff\x02CLUSTER\x01c\x02"}, "not UTF-8"),
        ({"properties": b"UNIQ_KEY\x01" + b"\xff" * 32 + b"\x02CLUSTER\x01c\x02"}, "not UTF-8"),
    ],
)
def test_each_rule_is_held_and_worded(changes: dict[str, Any], text: str) -> None:
    """One bad record among forty refuses only its section; the text names the record and the reason."""
    bad, good = record(**changes), record()
    made = [good] * 50 + [good] * 20 + [bad] + [good] * 19
    checkers = [PlainChecker(RULES[4]), PlainChecker(RULES[4])]
    result = both(made, [("T", 0, 50), ("T", 0, 40)], RULES[4], checkers)
    assert result.errors[0] is None
    assert result.errors[1] is not None
    assert result.errors[1].startswith("record 20: ")
    assert text in result.errors[1]
    assert result.group is not None
    assert result.group.buffer.tobytes() == good * 50
    alone = both([bad] * 40, [("T", 0, 40)], RULES[4], checkers)
    assert alone.errors[0] is not None
    assert text in alone.errors[0]
    assert alone.group is None


@pytest.mark.parametrize(
    ("properties", "keys", "tags_code"),
    [
        (b"CLUSTER\x01c\x02" + UNIQ, None, 0),
        (b"CLUSTER\x01c", None, 0),
        (UNIQ + b"CLUSTER\x01c", None, 0),
        (UNIQ + b"CLUSTER\x01c\x02KEYS\x01k", b"k", 0),
        (UNIQ + b"KEYS\x01a b\x02TAGS\x01TagA\x02CLUSTER\x01c\x02", b"a b", 2598919),
        (UNIQ + b"TAGS\x01xKEYS\x01y\x02CLUSTER\x01c\x02", None, None),
        (UNIQ + b"KEYS\x01\x02CLUSTER\x01c\x02", None, 0),
        (UNIQ + b"KEYS\x01\xc3\xa9\x02CLUSTER\x01c\x02", b"\xc3\xa9", 0),
        (b"UNIQ_KEY\x01" + b"\xc3\xa9" * 16 + b"\x02CLUSTER\x01c\x02", None, 0),
        (b"UNIQ_KEY\x01short\x02CLUSTER\x01c\x02", None, 0),
    ],
)
def test_odd_but_legal_shapes_pass(properties: bytes, keys: bytes | None, tags_code: int | None) -> None:
    """Other orders, a missing last separator, other unique keys: the scalar parser judges them."""
    result = both([record(properties=properties)] * 45, [("T", 0, 45)], RULES[4])
    assert result.errors == [None]
    assert result.group is not None
    assert result.group.keys == (None if keys is None else [keys] * 45)
    if tags_code is not None:
        assert result.group.tags_codes.tolist() == [tags_code] * 45


@given(
    st.lists(
        st.sampled_from(
            [
                b"UNIQ_KEY\x01",
                b"0" * 32,
                b"\x02",
                b"\x01",
                b"KEYS\x01",
                b"TAGS\x01",
                b"CLUSTER\x01c\x02",
                b"k",
                b"\xc3\xa9",
                b"\xff",
                b"WAIT\x01",
            ]
        ),
        max_size=9,
    ),
    st.booleans(),
)
def test_any_property_string_gives_one_verdict(parts: list[bytes], usual: bool) -> None:
    """Whatever the properties contain, both ways agree, with cold and warm caches."""
    text = (UNIQ if usual else b"") + b"".join(parts)
    good = record()
    both([good, record(properties=text)] * 20, [("T", 0, 40)], RULES[4])
    both([record(properties=text)] * 40, [("T", 0, 40)], RULES[4])


@given(st.lists(st.binary(max_size=3), min_size=40, max_size=40), st.integers(0, 2))
def test_keys_of_any_bytes_give_one_verdict(keys: list[bytes], pad: int) -> None:
    """The keys differ from record to record, with equal and different lengths."""
    made = [
        record(properties=UNIQ + b"KEYS\x01" + (key.ljust(3, b"k") if pad else key) + b"\x02CLUSTER\x01c\x02")
        for key in keys
    ]
    both(made, [("T", 0, 40)], RULES[4])


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("flip", [0x01, 0x80])
def test_every_byte_of_a_record_is_judged_alike(family: int, flip: int) -> None:
    """One bit after the other, between good records: the columnar check finds what the scalar check finds."""
    message = Message("T", b"body", tags="A", keys="k1", properties={"a": "b"})
    builder = PlainRecordBuilder("c", family)
    made = [builder.build(message, 0, b"%032X" % number, 0) for number in range(40)]
    sizes = np.array([len(one) for one in made], ">u4")
    sections = [("T", 0, 20), ("T", 0, 20)]
    buffer = b"".join(made)
    begin = len(made[0]) * 25
    checker = PlainChecker(RULES[family])
    likenesses = 0
    for at in range(begin, begin + len(made[25])):
        scalar, columns = array(buffer), array(buffer)
        scalar[at] ^= flip
        columns[at] ^= flip
        expected = check_plain_scalar(scalar, sizes, sections_of(sections), checker)
        got = check_plain_columns(columns, sizes, sections_of(sections), checker)
        assert columns_of(got) == columns_of(expected), at - begin
        alike = check_plain_alike(array(scalar.tobytes()), sizes.astype(np.int64), sections_of(sections), checker)
        assert alike is None or columns_of(alike) == columns_of(expected), at - begin
        likenesses += alike is not None
    assert likenesses >= 40  # flag, offsets, times, hosts, half of the unique key


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("body_bytes", [[0], [5], [5, 9, 0], [400]])
def test_what_is_sent_together_is_proven_by_likeness(family: int, keys: bool, body_bytes: list[int]) -> None:
    """Records of one topic that differ only in the usual places pass without the scalar check."""
    builder = PlainRecordBuilder("c", family)
    made = []
    for number in range(30):
        message = Message(
            "T", bytes(body_bytes[number % len(body_bytes)]), tags="A", keys=f"k{number:03}" if keys else ""
        )
        message.flag = number
        made.append(builder.build(message, number // 10, b"%032X" % number, 1000 + number, number % 2))
    sections = [("T", number, 10) for number in range(3)]
    result = both(made, sections, RULES[family])
    assert result.errors == [None] * 3
    sizes = np.array([len(one) for one in made])
    alike = check_plain_alike(array(b"".join(made)), sizes, sections_of(sections), PlainChecker(RULES[family]))
    assert alike is not None
    assert columns_of(alike) == columns_of(result)


@given(appends(), st.data())
def test_one_changed_byte_behind_a_good_frame_gives_one_verdict(
    append: tuple[int, list[bytes], list[Counted]], data: Any
) -> None:
    """Set one byte of a record to any value, in any frame: all ways agree, with caches that know the good frame."""
    family, made, sections = append
    checkers = [PlainChecker(RULES[family]), PlainChecker(RULES[family])]
    both(made, sections, RULES[family], checkers)
    victim = data.draw(st.integers(0, len(made) - 1))
    at = data.draw(st.integers(0, len(made[victim]) - 1))
    value = data.draw(st.sampled_from([0, 1, 2, 0x20, 0x41, 0x7F, 0x80, 0xFF]))
    changed = made[victim][:at] + bytes([value]) + made[victim][at + 1 :]
    both([*made[:victim], changed, *made[victim + 1 :]], sections, RULES[family], checkers)


def test_a_known_end_speaks_only_for_its_topic() -> None:
    """The cache of record ends holds the topic: the same bytes under another section's topic are refused."""
    checker = PlainChecker(RULES[4])
    made = record(topic="T", properties=UNIQ + b"CLUSTER\x01c\x02")
    sizes = np.array([len(made)])
    for _ in range(2):
        assert check_plain(array(made), sizes, sections_of([("T", 0, 1)]), checker).errors == [None]
    assert len(checker.ends) == 1
    for topic in ("U", "TT", "T" * 34):
        (error,) = check_plain(array(made), sizes, sections_of([(topic, 0, 1)]), checker).errors
        assert error is not None
        assert "topic" in error


@pytest.mark.parametrize("value", [b"\x02WAIT\x01true\x02" + b"0" * 21, b"0" * 31 + b"\x02", b"\x00" * 32, b" " * 32])
def test_a_known_end_does_not_hide_a_separator(value: bytes) -> None:
    """The bytes in place of a UNIQ_KEY value are judged each time, whatever the cache has seen around them."""
    checkers = [PlainChecker(RULES[4]), PlainChecker(RULES[4])]
    tail = b"\x02TAGS\x01A\x02CLUSTER\x01c\x02"
    good = record(properties=b"UNIQ_KEY\x01" + b"0" * 32 + tail)
    assert len(value) == 32
    odd = record(properties=b"UNIQ_KEY\x01" + value + tail)
    both([good] * 30, [("T", 0, 30)], RULES[4], checkers)
    result = both([good, odd], [("T", 0, 2)], RULES[4], checkers)
    assert (result.errors == [None]) == (b"WAIT" not in value)


@pytest.mark.parametrize(
    "value", [b"k" * 11, b"k\x02WAIT\x01tru", b"k\x02KEYS\x01kkk", b"kkkkk\x01kkkkk", b"\xff" * 11, b"k\x02" * 5 + b"k"]
)
@pytest.mark.parametrize("others", [b"k" * 11, b"k" * 9])
def test_keys_that_smuggle_properties(value: bytes, others: bytes) -> None:
    """Separators inside one record's KEYS are found behind the other records' keys, of equal or another length."""
    made = [record(properties=UNIQ + b"KEYS\x01" + others + b"\x02CLUSTER\x01c\x02")] * 40
    made[7] = record(properties=UNIQ + b"KEYS\x01" + value + b"\x02CLUSTER\x01c\x02")
    result = both(made, [("T", 0, 40)], RULES[4])
    assert (result.errors[0] is None) == (b"WAIT" not in value and b"\x02KEYS" not in value and b"\xff" not in value)


@pytest.mark.parametrize(
    "value", [b"0" * 21 + b"\x02WAIT\x01true\x02", b"0" * 15 + b"\x02" + b"KEYS\x01" + b"k" * 11, b" " * 32]
)
def test_unique_keys_that_smuggle_properties(value: bytes) -> None:
    """They are found behind a UNIQ_KEY of the usual length, too."""
    assert len(value) == 32
    made = [record(properties=UNIQ + b"CLUSTER\x01c\x02")] * 40
    made[7] = record(properties=b"UNIQ_KEY\x01" + value + b"\x02CLUSTER\x01c\x02")
    result = both(made, [("T", 0, 40)], RULES[4])
    assert (result.errors[0] is None) == (b"WAIT" not in value)


def test_keys_inside_a_value_are_not_cut_out() -> None:
    """This holds even where the rest would be a tail that the cache knows."""
    checkers = [PlainChecker(RULES[4]), PlainChecker(RULES[4])]
    known = record(properties=UNIQ + b"TAGS\x01xy\x02CLUSTER\x01c\x02")
    odd = record(properties=UNIQ + b"TAGS\x01xKEYS\x01k\x02y\x02CLUSTER\x01c\x02")
    result = both([known, odd] * 20, [("T", 0, 40)], RULES[4], checkers)
    assert result.group is not None
    assert result.group.keys is None
    assert len(set(result.group.tags_codes.tolist())) == 2


@pytest.mark.parametrize(
    ("topic", "queue_id", "text"),
    [
        ("%RETRY%g", 0, "no plain records"),
        ("%DLQ%g", 0, "no plain records"),
        ("SCHEDULE_TOPIC_XXXX", 0, "system topic"),
        ("rmq_sys_x", 0, "system topic"),
        ("", 0, "characters"),
        ("a/b", 0, "illegal characters"),
        ("t" * 128, 0, "128 characters"),
        ("T", -1, "queue id -1"),
        ("T", 1 << 40, "queue id"),
    ],
)
def test_sections_of_impossible_queues_are_refused(topic: str, queue_id: int, text: str) -> None:
    """Topics that take no plain records are refused; the other sections are not affected."""
    good = record()
    made = [record(topic=topic)] + [good] * 45
    result = both(made, [(topic, queue_id, 1), ("T", 0, 45)], RULES[4])
    assert result.errors[1] is None
    assert result.errors[0] is not None
    assert text in result.errors[0]
    assert result.group is not None
    assert [(section.first, section.count) for section in result.group.sections] == [(0, 45)]


@pytest.mark.parametrize("count", [2, 50])
@pytest.mark.parametrize(
    ("sizes_off", "counts"),
    [(1, None), (-1, None), (0, [1]), (0, []), (0, [0]), (0, [-1])],
)
def test_nonsense_of_the_frame_is_refused(count: int, sizes_off: int, counts: list[int] | None) -> None:
    """If sizes and counts do not add up, the whole frame is illegal and no section is judged."""
    made = [record()] * count
    sizes = np.array([len(one) for one in made], np.int64)
    sizes[-1] += sizes_off
    if counts is None:
        sections = [("T", 0, count)]
    else:
        sections = [("T", 0, count)] * (1 if counts in ([0], [-1]) else 0)
        sections += [("T", 0, one) for one in counts]
    for check in (check_plain, check_plain_scalar, check_plain_columns):
        with pytest.raises(MessageIllegal):
            check(array(b"".join(made)), sizes, sections_of(sections), PlainChecker(RULES[4]))


@given(st.binary(max_size=300), st.integers(1, 50), st.sampled_from([4, 6]))
def test_garbage_gives_verdicts_and_no_other_error(garbage: bytes, count: int, family: int) -> None:
    """Random bytes, cut anywhere, are refused alike in both ways."""
    step = len(garbage) // count
    made = [garbage[at * step : (at + 1) * step if at < count - 1 else len(garbage)] for at in range(count)]
    result = both(made, [("T", 0, count)], RULES[family])
    assert result.errors[0] is not None
    assert result.group is None


def test_many_topics_and_queues_in_one_pass() -> None:
    """One record per topic is checked in the scalar way, a few topics in the columnar way."""
    for topics in (50, 4):
        made, sections = [], []
        for number in range(50):
            topic = f"T{number % topics}"
            made.append(record(topic=topic, queue_id=number))
            sections.append((topic, number, 1))
        assert both(made, sections, RULES[4]).errors == [None] * 50


def test_the_cache_is_bounded() -> None:
    """A full cache starts again; it keeps no long tails and no refused records."""
    checker = PlainChecker(RULES[4], count_max=3, tail_bytes_max=20)
    for number in range(10):
        made = record(properties=UNIQ + b"T\x01%d\x02CLUSTER\x01c\x02" % number)
        check_plain(array(made), np.array([len(made)]), sections_of([("T", 0, 1)]), checker)
        assert len(checker.tails) <= 3
    count = len(checker.tails)
    for tail in (b"T\x01" + b"x" * 30 + b"\x02CLUSTER\x01c\x02", b"WAIT\x01t\x02", b"CLUSTER\x01d\x02"):
        made = record(properties=UNIQ + tail)
        check_plain(array(made), np.array([len(made)]), sections_of([("T", 0, 1)]), checker)
    assert len(checker.tails) == count
    assert not checker.ends  # each is longer than 20 bytes
    checker = PlainChecker(RULES[4], count_max=3)
    for number in range(10):
        made = record(properties=UNIQ + b"T\x01%d\x02CLUSTER\x01c\x02" % number)
        check_plain(array(made), np.array([len(made)]), sections_of([("T", 0, 1)]), checker)
        assert 1 <= len(checker.ends) <= 3
