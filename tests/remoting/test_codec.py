"""The three codecs."""

import struct
from typing import Any

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.codec import (
    REQUEST_MAP_BYTES_MAX,
    REQUEST_MSGPACK_BYTES_MAX,
    Request,
    decode_request,
    decode_response,
    decode_response_of,
    encode_request,
    encode_response,
    peek_response,
    with_extra,
)
from pocketmq.remoting.codes import LanguageCode, RequestCode, ResponseCode
from pocketmq.remoting.errors import FrameTooLarge, HeaderIllegal, WrongDirection
from pocketmq.remoting.frame import BINARY, FRAME_BYTES_MAX, JSON, MSGPACK, Buffer, Frame, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.protocol.offset import TopicQueueRequestHeader
from pocketmq.remoting.protocol.pull import PullMessageResponseHeader
from pocketmq.remoting.protocol.send import (
    NativeAppendRequestHeader,
    SendMessageResponseHeader,
    SendMessageV2RequestHeader,
)
from pocketmq.remoting.protocol.spec import Header
from pocketmq.remoting.string_map import READERS, WRITERS, wire_names
from tests.profiles import examples
from tests.remoting.strategies import ANY_HEADER, TEXT

SERIALIZE_TYPES = [JSON, BINARY, MSGPACK]
CODES = sorted(PROTOCOL)
SCRATCH = new_scratch()


def frame_of(buffers: list[Buffer]) -> Frame:
    decoder = FrameDecoder(SCRATCH, FrameBudget())
    (frame,) = decoder.feed(b"".join(buffers))
    assert not decoder.half
    return frame


def msgpack_frame(*parts: object) -> Frame:
    return Frame(MSGPACK, msgpack.packb(list(parts)), b"")


@pytest.mark.scaled
@pytest.mark.parametrize("code", CODES)
def test_every_request_round_trips_through_every_codec(code: int) -> None:
    """Header, body, opaque, oneway and extra fields come out unchanged."""
    header_type = PROTOCOL[code].request

    @examples(4, soak=40)
    @given(
        header=st.none() if header_type is None else ANY_HEADER[header_type],
        opaque=st.integers(0, 2**31 - 1),
        body=st.binary(max_size=20),
        oneway=st.booleans(),
        extra=st.dictionaries(TEXT.filter(bool).map(lambda name: "~" + name), TEXT, max_size=2),
    )
    def check(header: Header | None, opaque: int, body: bytes, oneway: bool, extra: dict[str, str]) -> None:
        for serialize_type in SERIALIZE_TYPES:
            frame = frame_of(
                encode_request(code, opaque, header, body, serialize_type=serialize_type, oneway=oneway, extra=extra)
            )
            request = decode_request(frame)
            assert (request.code, request.opaque, request.oneway, bytes(request.body)) == (code, opaque, oneway, body)
            assert (request.version, request.language, request.serialize_type) == (
                409,
                LanguageCode.PYTHON,
                serialize_type,
            )
            assert request.header == header
            assert dict(request.extra) == extra
            assert peek_response(frame) == (False, opaque, code)

    check()


@pytest.mark.scaled
@pytest.mark.parametrize("code", CODES)
def test_every_response_round_trips_through_every_codec(code: int) -> None:
    """Code, header, remark and body come out unchanged."""
    header_type = PROTOCOL[code].response

    @examples(4, soak=40)
    @given(
        header=st.none() if header_type is None else ANY_HEADER[header_type],
        opaque=st.integers(0, 2**31 - 1),
        body=st.lists(st.binary(max_size=20), max_size=3),
        remark=TEXT,
        answer=st.sampled_from([ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT]),
    )
    def check(header: Header | None, opaque: int, body: list[bytes], remark: str, answer: int) -> None:
        for serialize_type in SERIALIZE_TYPES:
            frame = frame_of(
                encode_response(
                    answer, opaque, code, header=header, remark=remark, body=body, serialize_type=serialize_type
                )
            )
            response = decode_response(frame, code)
            assert (response.code, response.opaque, response.remark) == (answer, opaque, remark)
            assert bytes(response.body) == b"".join(body)
            if header is not None and any(
                WRITERS[type(header)](header).values()
            ):  # nothing but defaults reads as no header
                assert response.header == header
            assert peek_response(frame) == (True, opaque, answer)

    check()


@pytest.mark.scaled
@pytest.mark.parametrize("kind", list(ANY_HEADER))
def test_msgpack_bytes_are_what_the_msgpack_library_reads(kind: type[Header]) -> None:
    """The independent library reads the same values, and its bytes decode to the same header."""
    request_code = next((code for code, spec in PROTOCOL.items() if spec.request is kind), None)
    response_code = next((code for code, spec in PROTOCOL.items() if spec.response is kind), None)

    @examples(4, soak=40)
    @given(header=ANY_HEADER[kind])
    def check(header: Header) -> None:
        if request_code is not None:
            frame = frame_of(encode_request(request_code, 7, header))
        else:
            assert response_code is not None
            frame = frame_of(encode_response(0, 7, response_code, header=header))
        outer = msgpack.unpackb(frame.header)
        plain = msgspec.to_builtins(header)
        assert outer == [request_code or 0, 7, 0 if request_code is not None else 1, 409, 3, "", _lists(plain)]
        repacked = Frame(MSGPACK, msgpack.packb(outer), b"")
        if request_code is not None:
            assert decode_request(repacked).header == header
        elif response_code is not None:
            assert decode_response(repacked, response_code).header == header

    check()


def _lists(value: Any) -> Any:
    return [_lists(item) for item in value] if isinstance(value, (list, tuple)) else value


def test_the_json_header_is_rocketmqs() -> None:
    """It has keys, order and string values as a RocketMQ peer writes and reads them; V2 has one-letter names."""
    header = SendMessageV2RequestHeader("g", "T", "TBW102", 4, 1, 0, 1700000000000, 0, "p", unit_mode=True)
    frame = frame_of(encode_request(RequestCode.SEND_MESSAGE_V2, 5, header, serialize_type=JSON))
    assert bytes(frame.header) == (
        b'{"code":310,"extFields":{"a":"g","b":"T","c":"TBW102","d":"4","e":"1","f":"0","g":"1700000000000","h":"0",'
        b'"i":"p","j":"0","k":"true","m":"false"},"flag":0,"language":"PYTHON","opaque":5,'
        b'"serializeTypeCurrentRPC":"JSON","version":409}'
    )


def test_the_binary_header_is_rocketmqs() -> None:
    """Byte for byte the layout of RocketMQSerializable."""
    frame = frame_of(
        encode_request(RequestCode.GET_MAX_OFFSET, 9, TopicQueueRequestHeader("T", 3), serialize_type=BINARY)
    )
    fields = b"\0\5topic\0\0\0\1T" + b"\0\7queueId\0\0\0\1" + b"3"
    assert bytes(frame.header) == (
        struct.pack(">hBhii", 30, 3, 409, 9, 0) + struct.pack(">i", 0) + struct.pack(">i", len(fields)) + fields
    )


def test_special_wire_names() -> None:
    """Some names differ from their camelCase form."""
    assert wire_names(PROTOCOL[RequestCode.UNREGISTER_CLIENT].request or Header)["client_id"] == "clientID"
    assert wire_names(SendMessageResponseHeader)["msg_region"] == "MSG_REGION"
    assert "".join(wire_names(SendMessageV2RequestHeader).values()) == "abcdefghijklmn"
    written = WRITERS[SendMessageResponseHeader](SendMessageResponseHeader("id", 1, 2))
    assert written == {
        "msgId": "id",
        "queueId": "1",
        "queueOffset": "2",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_a_json_header_may_lack_keys_and_name_an_unknown_language() -> None:
    """Other clients omit keys; null, numbers and unknown fields are accepted."""
    frame = Frame(
        JSON, b'{"code":30,"opaque":4,"language":"COBOL","extFields":{"topic":"T","queueId":3,"x":null}}', b""
    )
    request = decode_request(frame)
    assert request.header == TopicQueueRequestHeader("T", 3)
    assert (request.language, request.version) == (LanguageCode.OTHER, 0)
    assert decode_request(Frame(JSON, b'{"code":34,"remark":null,"extFields":null}', b"")).header is None


def test_unknown_fields_go_to_extra() -> None:
    """RocketMQ's inherited optional fields are kept, not refused."""
    request = decode_request(
        Frame(JSON, b'{"code":30,"extFields":{"topic":"T","queueId":"3","ns":"n","oway":"true"}}', b"")
    )
    assert dict(request.extra) == {"ns": "n", "oway": "true"}


@pytest.mark.parametrize("serialize_type", SERIALIZE_TYPES)
def test_an_unknown_code_has_no_header(serialize_type: int) -> None:
    """The request still arrives, so that the server can refuse it by name."""
    request = decode_request(frame_of(encode_request(29999, 3, None, b"b", serialize_type=serialize_type)))
    assert (request.code, request.header, bytes(request.body)) == (29999, None, b"b")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"topic": "T"}, "queueId"),
        ({"queueId": "1"}, "topic"),
        ({"topic": "T", "queueId": "one"}, "queueId"),
        ({"topic": "T", "queueId": "1_0"}, "queueId"),
        ({"topic": "T", "queueId": ""}, "queueId"),
        ({"topic": "T", "queueId": str(2**31)}, "queueId"),
        ({"topic": "T", "queueId": "1" * 5000}, "queueId"),
    ],
)
@pytest.mark.parametrize("serialize_type", [JSON, BINARY])
def test_a_bad_field_is_named(fields: dict[str, str], field: str, serialize_type: int) -> None:
    """Missing, wrong and too large values are refused with the field's name; the error has opaque and code."""
    frame = frame_of(encode_request(RequestCode.GET_MAX_OFFSET, 6, None, serialize_type=serialize_type, extra=fields))
    with pytest.raises(HeaderIllegal, match=f"field {field}") as caught:
        decode_request(frame)
    assert (caught.value.field, caught.value.opaque, caught.value.request_code) == (field, 6, 30)


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("TRUE", True), ("tRuE", True)]
    + [(text, False) for text in ("false", "False", "0", "1", "maybe", " true", "yes", "null")],
)
def test_a_bool_is_what_java_makes_of_it(text: str, value: bool) -> None:
    """Boolean.parseBoolean: every text but "true" is false. C++ writes "0"."""
    header: Any = READERS[PROTOCOL[RequestCode.GET_BROKER_CONSUME_STATS].request or Header]({"isOrder": text})
    assert header.is_order is value


@pytest.mark.parametrize(
    "ext",
    [
        None,
        [],
        ["T"],
        ["T", "1"],
        ["T", 2**31],
        [b"T", 1],
        {"topic": "T", "queue_id": 1},
        ["T", 1.5],
        ["T", True],
    ],
)
def test_wrong_types_in_a_msgpack_header_are_refused(ext: object) -> None:
    """The error carries opaque and code, so that the server can answer the peer."""
    with pytest.raises(HeaderIllegal) as caught:
        decode_request(msgpack_frame(30, 8, 0, 409, 3, "", ext))
    assert (caught.value.opaque, caught.value.request_code, caught.value.oneway) == (8, 30, False)


def test_later_fields_of_a_msgpack_header_are_ignored() -> None:
    """A newer peer may append fields."""
    request = decode_request(msgpack_frame(30, 8, 0, 500, 3, "", ["T", 1, "b", "new", [1]], {}, "newer"))
    assert request.header == TopicQueueRequestHeader("T", 1, "b")


def test_a_broken_outer_array_still_tells_opaque_and_code() -> None:
    """If the first three elements are readable, an answer is possible; otherwise it is not."""
    with pytest.raises(HeaderIllegal) as caught:
        decode_request(msgpack_frame(30, 8, 0, "409", 3, "", None))
    assert (caught.value.opaque, caught.value.request_code) == (8, 30)
    with pytest.raises(HeaderIllegal) as caught:
        decode_request(msgpack_frame("30", 8))
    assert caught.value.opaque is None


@pytest.mark.parametrize("opaque", [0, 127, 128, 60_000, 1 << 20, (1 << 31) - 1])
@pytest.mark.parametrize("length", [4, 20, 70_000])
def test_a_long_header_that_is_refused_is_not_decoded(opaque: int, length: int) -> None:
    """Only its beginning is read for the answer: what follows may be 2 MiB of nonsense."""
    frame = msgpack_frame(30, opaque, 0, *["bad"] * (length - 3))
    with pytest.raises(HeaderIllegal) as caught:
        decode_request(frame)
    assert (caught.value.opaque, caught.value.request_code, caught.value.oneway) == (opaque, 30, False)
    beginning = Frame(MSGPACK, bytes(frame.header[:24]), b"")
    with pytest.raises(HeaderIllegal) as caught:
        decode_request(beginning)
    assert caught.value.opaque == opaque


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xc1",
        msgpack.packb([30, 8, 0, 409, 3, "", ["T", 1]]) + b"junk",
        b"\x97\x1e\x08\x00\x00\x03\xa0" + b"\x91" * 100_000 + b"\xc0",
        b"\xdd\xff\xff\xff\xff",
        b"\x97\x1e\x08\x00\x00\x03\xa0\xdd\xff\xff\xff\xff",
        b"\x97\x1e\x08\x00\x00\x03\xdb\xff\xff\xff\xff",
        b"\x97\x1e\x08\x00\x00\x03\xa1\xff\xc0",
    ],
    ids=["empty", "reserved", "trailing", "deep", "long array", "long ext", "long string", "no UTF-8"],
)
def test_hostile_msgpack_is_refused(header: bytes) -> None:
    """Junk, nesting and claimed lengths end in HeaderIllegal, quickly and without using memory."""
    with pytest.raises(HeaderIllegal):
        decode_request(Frame(MSGPACK, header, b""))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"nonsense",
        b"[]",
        b'{"code":30,"opaque":"x"}',
        b'{"code":30} junk',
        b'{"code":30,"extFields":' + b"[" * 100_000,
        b'{"code":30,"extFields":{"topic":["T"]}}',
        b'{"code":99999999999}',
        b'{"code":30,"remark":"\xff"}',
    ],
)
def test_hostile_json_is_refused(header: bytes) -> None:
    """Junk, nesting and wrong types end in HeaderIllegal."""
    with pytest.raises(HeaderIllegal):
        decode_request(Frame(JSON, header, b""))


@given(st.sampled_from([*SERIALIZE_TYPES, 3, 255]), st.binary(max_size=80))
def test_garbage_raises_nothing_but_header_illegal(serialize_type: int, header: bytes) -> None:
    """Whatever the bytes, the typed error is the only one."""
    for decode in (decode_request, lambda frame: decode_response(frame, RequestCode.PULL_MESSAGE), peek_response):
        try:
            decode(Frame(serialize_type, header, b""))
        except HeaderIllegal:
            pass


@given(st.sampled_from(SERIALIZE_TYPES), st.data())
def test_damaged_headers_raise_nothing_but_header_illegal(serialize_type: int, data: st.DataObject) -> None:
    """A valid header with some bytes changed or cut decodes or is refused."""
    header = SendMessageV2RequestHeader("group", "topic", "TBW102", 4, 1, 0, 1700000000000, 0, "properties")
    frame = frame_of(encode_request(RequestCode.SEND_MESSAGE_V2, 5, header, serialize_type=serialize_type))
    damaged = bytearray(frame.header)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(1, len(damaged))) :]
    try:
        assert isinstance(decode_request(Frame(serialize_type, bytes(damaged), b"")), Request)
    except HeaderIllegal:
        pass


def test_a_success_without_its_fields_is_illegal_a_failure_has_no_header() -> None:
    """A refusal carries a remark and no typed header."""
    for serialize_type in SERIALIZE_TYPES:
        refusal = frame_of(
            encode_response(
                2, 3, RequestCode.PULL_MESSAGE, remark="busy", serialize_type=serialize_type, extra={"a": "b"}
            )
        )
        response = decode_response(refusal, RequestCode.PULL_MESSAGE)
        assert (response.code, response.header, response.remark) == (2, None, "busy")
        assert dict(response.extra) == {"a": "b"}
        bad = frame_of(encode_response(0, 3, RequestCode.PULL_MESSAGE, serialize_type=serialize_type))
        with pytest.raises(HeaderIllegal):
            decode_response(bad, RequestCode.PULL_MESSAGE)


def test_a_failure_may_have_a_header_too() -> None:
    """PULL_NOT_FOUND carries the next offset."""
    header = PullMessageResponseHeader(0, 5, 1, 9)
    for serialize_type in SERIALIZE_TYPES:
        frame = frame_of(encode_response(19, 3, RequestCode.PULL_MESSAGE, header=header, serialize_type=serialize_type))
        assert decode_response(frame, RequestCode.PULL_MESSAGE).header == header


@pytest.mark.parametrize("serialize_type", SERIALIZE_TYPES)
def test_directions_are_told_apart(serialize_type: int) -> None:
    """A response is no request, a request no response, and an unknown opaque matches nothing."""
    request = frame_of(encode_request(RequestCode.HEART_BEAT, 1, serialize_type=serialize_type))
    response = frame_of(encode_response(0, 1, RequestCode.HEART_BEAT, serialize_type=serialize_type))
    with pytest.raises(WrongDirection):
        decode_request(response)
    with pytest.raises(WrongDirection):
        decode_response(request, RequestCode.HEART_BEAT)
    assert decode_response_of(response, lambda opaque: None) is None


def test_a_frame_above_the_limit_is_not_sent() -> None:
    """The caller gets the error before a byte leaves."""
    with pytest.raises(FrameTooLarge):
        encode_request(RequestCode.SEND_MESSAGE, 1, None, bytes(FRAME_BYTES_MAX))


def test_with_extra_adds_a_field_to_the_right_json_response() -> None:
    """Other responses and other codecs stay unchanged."""
    buffers = encode_response(0, 4, 34, remark="r", body=b"body", serialize_type=JSON)
    assert with_extra(buffers, 5, "_pmq", "x") is None
    assert with_extra(encode_response(0, 4, 34), 4, "_pmq", "x") is None
    changed = with_extra(buffers, 4, "_pmq", "x")
    assert changed is not None
    response = decode_response(frame_of(changed), 34)
    assert (dict(response.extra), response.remark, bytes(response.body)) == ({"_pmq": "x"}, "r", b"body")


def test_native_append_is_small() -> None:
    """The header of a native append has few bytes: an array of arrays."""
    header = NativeAppendRequestHeader("orders", True, [("TopicTest", 3, 64)], 3000)
    buffers = encode_request(RequestCode.NATIVE_APPEND, 17, header, b"body")
    assert len(buffers) == 2
    assert len(buffers[0]) == 45


def long_header(serialize_type: int, value_bytes: int, flag: int = 0) -> bytes:
    if serialize_type == JSON:
        return msgspec.json.encode({"code": 10, "opaque": 7, "flag": flag, "extFields": {"x": "y" * value_bytes}})
    if serialize_type == BINARY:
        fields = struct.pack(">H1sI", 1, b"x", value_bytes) + b"y" * value_bytes
        return struct.pack(">hBhiiii", 10, 0, 400, 7, flag, 0, len(fields)) + fields
    return msgspec.msgpack.encode((10, 7, flag, 400, 12, None, None, {"x": "y" * value_bytes}))


@pytest.mark.parametrize(
    ("serialize_type", "limit"),
    [(JSON, REQUEST_MAP_BYTES_MAX), (BINARY, REQUEST_MAP_BYTES_MAX), (MSGPACK, REQUEST_MSGPACK_BYTES_MAX)],
)
def test_a_header_that_no_client_needs_is_refused_unread(serialize_type: int, limit: int) -> None:
    """Reading a header of 16 MiB would block the loop for a second or more; its sender still gets an answer."""
    header = long_header(serialize_type, limit)
    with pytest.raises(HeaderIllegal, match=rf"{len(header)} bytes, the limit is {limit}") as raised:
        decode_request(Frame(serialize_type, header, b""))
    assert (raised.value.opaque, raised.value.request_code, raised.value.oneway) == (7, 10, False)
    with pytest.raises(HeaderIllegal) as raised:
        decode_request(Frame(serialize_type, long_header(serialize_type, limit, flag=2), b""))
    assert raised.value.oneway


@pytest.mark.parametrize("serialize_type", SERIALIZE_TYPES)
def test_a_request_knows_how_long_its_header_was(serialize_type: int) -> None:
    """A queue must count the header's memory, too."""
    frame = Frame(
        serialize_type, bytes(encode_request(RequestCode.HELLO, 1, serialize_type=serialize_type)[0][8:]), b""
    )
    assert decode_request(frame).header_bytes == len(frame.header) > 0
