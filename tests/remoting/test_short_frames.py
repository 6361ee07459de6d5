"""The structs of small native appends against the msgpack codec."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting import short_frames as short
from pocketmq.remoting.codec import Request, Response, decode_request, decode_response, encode_request, encode_response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import MSGPACK, Frame
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader, NativeAppendResponseHeader

LONG = st.integers(0, 2**63 - 1)
SECTIONS = st.lists(st.tuples(LONG, LONG, st.integers(1, short.SECTIONS_MAX)), min_size=1, max_size=short.SECTIONS_MAX)


def answer_of(opaque: int, timestamp: int, sections: list[tuple[int, int, int]]) -> bytes:
    """Pack one answer as a short path does."""
    size = short.ANSWER_HEAD.size + len(sections) * short.ANSWER_SECTION.size
    head = short.ANSWER_HEAD.pack(
        size - 4, MSGPACK << 24 | size - 8, short.HEAD_A, opaque, short.HEAD_B, timestamp, short.HEAD_C, len(sections)
    )
    return head + b"".join(
        short.ANSWER_SECTION.pack(
            short.SECTION_A, first, short.SECTION_B, start, short.SECTION_C, count, short.SECTION_D
        )
        for first, start, count in sections
    )


def frame_of(data: bytes) -> Frame:
    """Cut one frame out of the bytes that hold it."""
    length, word = struct.unpack_from(">II", data)
    assert length == len(data) - 4
    header_bytes = word & 0xFFFFFF
    return Frame(word >> 24, data[8 : 8 + header_bytes], data[8 + header_bytes :])


@given(st.integers(0, short.OPAQUE_MAX), LONG, SECTIONS)
def test_an_answer_of_fixed_width_is_decoded_like_the_usual_one(
    opaque: int, timestamp: int, sections: list[tuple[int, int, int]]
) -> None:
    """Its numbers are wider; all else is equal."""
    results = [(0, first, [(start, count)], "") for first, start, count in sections]
    usual = encode_response(
        0,
        opaque,
        RequestCode.NATIVE_APPEND,
        header=NativeAppendResponseHeader(timestamp, results),
        serialize_type=MSGPACK,
    )
    decoded = [
        decode_response(frame_of(data), RequestCode.NATIVE_APPEND)
        for data in (b"".join(usual), answer_of(opaque, timestamp, sections))
    ]
    usual_fields, fixed_fields = ({name: getattr(each, name) for name in Response.__slots__} for each in decoded)
    assert usual_fields == fixed_fields


@given(st.integers(0, short.OPAQUE_MAX), st.text(max_size=40), st.integers(1, 4000))
def test_a_request_with_a_wide_opaque_is_decoded_like_the_usual_one(opaque: int, group: str, timeout_ms: int) -> None:
    """A client replaces the bytes before the constant part."""
    header = NativeAppendRequestHeader(group, True, [("T", 3, 1)], timeout_ms)

    def request(number: int) -> bytes:
        return b"".join(
            encode_request(RequestCode.NATIVE_APPEND, number, header=header, body=b"x", serialize_type=MSGPACK)
        )

    widest = request(short.OPAQUE_MAX)
    length, word, lead, number = short.REQUEST_HEAD.unpack_from(widest)
    assert (lead, number) == (short.REQUEST_LEAD, short.OPAQUE_MAX)
    made = short.REQUEST_HEAD.pack(length, word, short.REQUEST_LEAD, opaque) + widest[short.REQUEST_HEAD.size :]
    ours, usual = (decode_request(frame_of(data)) for data in (made, request(opaque)))
    assert isinstance(ours, Request)
    assert (ours.opaque, ours.header, bytes(ours.body)) == (usual.opaque, usual.header, bytes(usual.body))
