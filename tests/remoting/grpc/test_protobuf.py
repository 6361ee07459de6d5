"""The codec: every message both ways, by the official library as oracle where it is installed, and broken bytes."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.remoting.grpc import messages
from pocketmq.remoting.grpc.protobuf import (
    BOOL,
    DEPTH_MAX,
    FIELDS_MAX,
    FLOAT,
    MAP,
    RAW,
    STRING,
    Field,
    Message,
    ProtobufIllegal,
    decode,
    encode,
    encode_varint,
    fields_of,
)

KINDS = [
    each
    for each in vars(messages).values()
    if isinstance(each, type) and issubclass(each, Message) and each is not Message
]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def _values(field: Field, depth: int) -> st.SearchStrategy[Any]:
    if field.message is not None:
        return messages_of(field.message, depth - 1)
    if field.kind is STRING:
        return TEXTS
    if field.kind is RAW:
        return st.binary(max_size=8)
    if field.kind is BOOL:
        return st.booleans()
    if field.kind is FLOAT:
        return st.floats(width=32, allow_nan=False)
    half = 1 << (field.kind.bits - 1)
    return st.one_of(st.integers(-half, half - 1), st.sampled_from([0, 1, -1, half - 1, -half]))


def messages_of(kind: type[Message], depth: int = 5) -> st.SearchStrategy[Any]:
    """Messages of a class, with at most one field of each oneof."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in fields_of(kind):
        if field.kind is MAP:
            fields[field.name] = st.dictionaries(TEXTS, TEXTS, max_size=3)
        elif field.message is not None and depth <= 0:
            continue
        elif field.repeated:
            fields[field.name] = st.lists(_values(field, depth), max_size=3)
        elif field.optional:
            fields[field.name] = st.none() | _values(field, depth)
        else:
            fields[field.name] = _values(field, depth)

    def build(given: dict[str, Any], chosen: int) -> Message:
        for group in kind.oneofs:
            present = [name for name in group if given.get(name) is not None]
            for name in present:
                if name != present[chosen % len(present)]:
                    given[name] = None
        return kind(**given)

    return st.builds(build, st.fixed_dictionaries(fields), st.integers(0, 7))


ANY = st.sampled_from(KINDS).flatmap(messages_of)


@given(ANY)
def test_every_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(type(message), encode(message)) == message


@given(ANY, st.integers(0, 1 << 32))
def test_changed_bytes_are_read_or_refused_and_nothing_else(message: Message, seed: int) -> None:
    data, rng = bytearray(encode(message) or b"\0"), random.Random(seed)
    for _ in range(rng.randint(1, 4)):
        change = rng.randint(0, 2)
        at = rng.randrange(len(data))
        if change == 0:
            data[at] = rng.randrange(256)
        elif change == 1:
            del data[at:]
        else:
            data[at:at] = rng.randbytes(rng.randint(1, 6))
        if not data:
            data = bytearray(b"\x0a")
    try:
        decode(type(message), bytes(data))
    except ProtobufIllegal:
        pass


@given(st.binary(max_size=64), st.sampled_from(KINDS))
def test_any_bytes_are_read_or_refused(data: bytes, kind: type[Message]) -> None:
    try:
        decode(kind, data)
    except ProtobufIllegal:
        pass


def test_unknown_fields_of_every_wire_type_are_skipped() -> None:
    known = encode(messages.Resource(name="T"))
    unknown = [
        encode_varint(900 << 3) + b"\x96\x01",
        encode_varint(900 << 3 | 1) + bytes(8),
        encode_varint(900 << 3 | 2) + b"\x03abc",
        encode_varint(900 << 3 | 5) + bytes(4),
        encode_varint(900 << 3 | 3) + b"\x08\x01" + encode_varint(900 << 3 | 4),
    ]
    for part in unknown:
        assert decode(messages.Resource, part + known + part) == messages.Resource(name="T")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x12", id="a length that is missing"),
        pytest.param(b"\x12\x05ab", id="a text that is cut off"),
        pytest.param(b"\x12\x02\xff\xff", id="a text that is no UTF-8"),
        pytest.param(b"\xff" * 11, id="a number of eleven bytes"),
        pytest.param(b"\x06", id="a wire type that does not exist"),
        pytest.param(b"\x02\x00", id="the field 0"),
        pytest.param(b"\x0c", id="the end of a group that has not begun"),
        pytest.param(encode_varint(900 << 3 | 3), id="a group without an end"),
        pytest.param(encode_varint(900 << 3 | 1) + b"\0", id="an unknown number that is cut off"),
    ],
)
def test_broken_bytes_are_a_clear_error(data: bytes) -> None:
    with pytest.raises(ProtobufIllegal, match="Resource cannot be read: "):
        decode(messages.Resource, data)


def test_messages_in_messages_have_a_limit() -> None:
    deep = b""
    for _ in range(DEPTH_MAX + 1):
        deep = encode_varint(900 << 3 | 3) + deep + encode_varint(900 << 3 | 4)
    with pytest.raises(ProtobufIllegal, match="messages in each other"):
        decode(messages.Resource, deep)


@pytest.mark.parametrize("part", [b"\x0a\x00", b"\xb8\x38\x00"], ids=["messages", "fields that nobody knows"])
def test_many_small_fields_are_refused_before_they_cost_memory(part: bytes) -> None:
    with pytest.raises(ProtobufIllegal, match=f"more than {FIELDS_MAX} fields"):
        decode(messages.SendMessageRequest, part * (FIELDS_MAX + 1))


def test_a_packed_list_counts_its_elements() -> None:
    packed = b"\x2a" + encode_varint(FIELDS_MAX + 1) + bytes(FIELDS_MAX + 1)
    with pytest.raises(ProtobufIllegal, match="fields"):
        decode(messages.MessageQueue, packed)


def test_packed_and_single_elements_are_both_read_and_packed_ones_written() -> None:
    queue = messages.MessageQueue(accept_message_types=[1, 2, 3])
    assert encode(queue) == b"\x2a\x03\x01\x02\x03"
    assert decode(messages.MessageQueue, b"\x28\x01\x2a\x02\x02\x03") == queue


def test_of_a_oneof_the_last_field_counts() -> None:
    both = encode(messages.Settings(publishing=messages.Publishing(max_body_size=1))) + encode(
        messages.Settings(subscription=messages.Subscription(fifo=True))
    )
    found = decode(messages.Settings, both)
    assert found.publishing is None
    assert found.subscription == messages.Subscription(fifo=True)


def test_a_message_that_comes_twice_is_merged() -> None:
    twice = encode(messages.MessageQueue(broker=messages.Broker(name="b", id=1)))
    twice += encode(messages.MessageQueue(broker=messages.Broker(id=2)))
    assert decode(messages.MessageQueue, twice).broker == messages.Broker(name="b", id=2)


# ---- the official library as oracle --------------------------------------------------------------------------------


def _official() -> Any:
    reason = "pip install rocketmq-python-client: its definition_pb2 is the oracle"
    pytest.importorskip("google.protobuf", reason=reason)
    pytest.importorskip("grpc", reason=reason)
    return pytest.importorskip("rocketmq.grpc_protocol", reason=reason)


def _official_class(official: Any, kind: type[Message]) -> Any:
    if kind in (messages.Timestamp, messages.Duration):
        from google.protobuf import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
            duration_pb2,
            timestamp_pb2,
        )

        return timestamp_pb2.Timestamp if kind is messages.Timestamp else duration_pb2.Duration
    name = "Message" if kind is messages.MessageOf else kind.__name__
    from rocketmq.grpc_protocol import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
        definition_pb2,
        service_pb2,
    )

    return getattr(definition_pb2, name, None) or getattr(service_pb2, name)


def test_the_table_is_that_of_the_official_library() -> None:
    official = _official()
    for kind in KINDS:
        theirs = {field.name: field for field in _official_class(official, kind).DESCRIPTOR.fields}
        ours = {field.name: field for field in fields_of(kind)}
        assert {name: field.number for name, field in ours.items()} == {
            name: field.number for name, field in theirs.items()
        }, kind
        for name, field in ours.items():
            assert field.repeated or field.kind is MAP or not theirs[name].is_repeated, (kind, name)
            assert field.optional == (theirs[name].has_presence), (kind, name)


@given(ANY)
@settings(deadline=None)
def test_the_official_library_reads_and_writes_the_same(message: Message) -> None:
    official = _official()
    theirs = _official_class(official, type(message))()
    theirs.ParseFromString(encode(message))
    assert decode(type(message), theirs.SerializeToString()) == message
