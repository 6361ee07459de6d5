"""The text of message trace, and the path made from it."""

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.admin.trace_path import path_of
from pocketmq.client.trace.trace_format import ContextCode, TracedKind, TraceRecord, TraceType, decode_records

WORDS = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), max_size=20).filter(
    lambda word: word != "null"
)
NUMBERS = st.integers(0, 2**40)

PUBS = st.builds(
    TraceRecord, trace_type=st.just(TraceType.PUB), msg_id=WORDS, timestamp_ms=NUMBERS, region=WORDS, group=WORDS,
    topic=WORDS, tags=WORDS, keys=WORDS, store_host=WORDS, body_bytes=NUMBERS, cost_ms=NUMBERS,
    kind=st.sampled_from([int(kind) for kind in TracedKind]), offset_msg_id=WORDS, success=st.booleans(),
)  # fmt: skip
BEFORES = st.builds(
    TraceRecord, trace_type=st.just(TraceType.SUB_BEFORE), msg_id=WORDS, timestamp_ms=NUMBERS, region=WORDS,
    group=WORDS, request_id=WORDS, retry_times=NUMBERS, keys=WORDS,
)  # fmt: skip
AFTERS = st.builds(
    TraceRecord, trace_type=st.just(TraceType.SUB_AFTER), msg_id=WORDS, timestamp_ms=NUMBERS, group=WORDS,
    request_id=WORDS, cost_ms=NUMBERS, success=st.booleans(), keys=WORDS,
    context_code=st.sampled_from([int(code) for code in ContextCode]),
)  # fmt: skip


@given(st.lists(st.one_of(PUBS, BEFORES, AFTERS), max_size=5))
def test_records_come_back(records: list[TraceRecord]) -> None:
    """Any fields without separators, many records in one body."""
    assert decode_records("".join(record.encode() for record in records).encode()) == records


@given(st.binary(max_size=300))
def test_garbage_is_left_out(body: bytes) -> None:
    """No bytes raise an exception."""
    assert isinstance(decode_records(body), list)


def test_the_text_is_rocketmqs() -> None:
    """The fields of each type in RocketMQ's order (TraceDataEncoder)."""
    pub = TraceRecord(
        trace_type=TraceType.PUB, msg_id="ID", timestamp_ms=1, region="R", group="G", topic="T", tags="A", keys="k l",
        store_host="h:1", body_bytes=5, cost_ms=2, kind=TracedKind.DELAY, offset_msg_id="O", success=True,
    )  # fmt: skip
    assert pub.encode().replace("\x01", "|").replace("\x02", "$") == "Pub|1|R|G|T|ID|A|k l|h:1|5|2|3|O|true$"
    assert pub.index_keys() == {"ID", "k", "l"}
    before = TraceRecord(
        trace_type=TraceType.SUB_BEFORE, msg_id="ID", timestamp_ms=1, region="R", group="G", request_id="Q",
        retry_times=3, keys="k",
    )  # fmt: skip
    assert before.encode().replace("\x01", "|").replace("\x02", "$") == "SubBefore|1|R|G|Q|ID|3|k$"
    after = TraceRecord(
        trace_type=TraceType.SUB_AFTER, msg_id="ID", timestamp_ms=9, group="G", request_id="Q", cost_ms=7,
        success=False, keys="k", context_code=ContextCode.FAILED,
    )  # fmt: skip
    assert after.encode().replace("\x01", "|").replace("\x02", "$") == "SubAfter|Q|ID|7|false|k|4|9|G$"


def test_javas_null_and_shorter_forms_are_read() -> None:
    """Java writes "null" for missing tags; old clients end earlier; unknown types are left out."""
    text = (
        "Pub|1|R|G|T|ID|null|null|h:1|5|2|0|true$"
        "SubAfter|Q|ID|7|true|null$"
        "EndTransaction|1|R|G|T|ID|A|k|h|1|t|COMMIT_MESSAGE|false$"
        "Pub|no number|R$"
    )
    pub, after = decode_records(text.replace("|", "\x01").replace("$", "\x02").encode())
    assert (pub.tags, pub.keys, pub.offset_msg_id, pub.success) == ("", "", "", True)
    assert (after.cost_ms, after.success, after.keys, after.timestamp_ms) == (7, True, "", 0)


def test_a_path_joins_tries_by_their_request() -> None:
    """Beginnings find their ends, in the order of time; records of other messages are left out."""

    def before(at_ms: int, request: str, msg_id: str = "ID") -> TraceRecord:
        return TraceRecord(
            trace_type=TraceType.SUB_BEFORE, msg_id=msg_id, timestamp_ms=at_ms, group="G", request_id=request
        )

    def after(at_ms: int, request: str, success: bool) -> TraceRecord:
        return TraceRecord(
            trace_type=TraceType.SUB_AFTER, msg_id="ID", timestamp_ms=at_ms, group="H", request_id=request,
            success=success, cost_ms=5,
        )  # fmt: skip

    pub = TraceRecord(trace_type=TraceType.PUB, msg_id="ID", timestamp_ms=3)
    records = [
        before(30, "b"), after(15, "a", False), before(10, "a"), pub, pub, before(1, "x", "OTHER"), after(50, "c", True)
    ]  # fmt: skip
    sends, consumptions = path_of("ID", records)
    assert sends == [pub]
    assert [(each.began_ms, each.group, each.after and each.after.success) for each in consumptions] == [
        (10, "G", False),
        (30, "G", None),
        (45, "H", True),
    ]
