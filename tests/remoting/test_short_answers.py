"""Answers read in place, against the decoder."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.codec import decode_response, encode_response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import HeaderIllegal, WrongDirection
from pocketmq.remoting.frame import MSGPACK, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.pending import Pending
from pocketmq.remoting.protocol.send import NativeAppendResponseHeader
from pocketmq.remoting.short_answers import ShortAnswers
from tests.remoting.test_short_frames import SECTIONS, answer_of

TWO = [(1, 2, 1), (7, 900, 3)]


class Append:
    """A small native append that waits."""

    request_code = int(RequestCode.NATIVE_APPEND)
    started_ns = deadline_ns = 0
    turn = -1

    def __init__(self, *counts: int) -> None:
        self.counts = counts
        self.places: Any = None

    def done(self, result: Any, /) -> None:
        raise AssertionError(result)

    def stored(self, places: Any, /) -> None:
        assert self.places is None
        self.places = list(places)


def taken(data: bytes, entries: dict[int, Any], failed: Any = None) -> int:
    """Let the answers at the beginning of ``data`` be read in place, in a buffer with old bytes behind them."""
    old = answer_of(99, 0, [(5, 5, 1)])
    return ShortAnswers(entries, failed or _fail).take(memoryview(bytearray(data + old)), len(data))


def _fail(error: Exception) -> None:
    raise error


@given(st.lists(SECTIONS, min_size=1, max_size=5), st.integers(0, 2**31 - 10))
def test_every_answer_goes_to_its_request(answers: list[list[tuple[int, int, int]]], first: int) -> None:
    """In any number in one read; the requests leave the table."""
    requests = {first + at: Append(*(count for _, _, count in rows)) for at, rows in enumerate(answers)}
    entries: dict[int, Any] = dict(requests)
    data = b"".join(answer_of(first + at, 3, rows) for at, rows in enumerate(answers))
    assert taken(data, entries) == len(data)
    assert not entries
    places = [request.places for request in requests.values()]
    assert places == [[(offset, start) for offset, start, _ in rows] for rows in answers]


@given(st.sampled_from([[(4, 5, 6)], TWO]), st.data())
def test_a_changed_answer_settles_only_what_the_decoder_would(rows: list[tuple[int, int, int]], data: Any) -> None:
    """Whatever byte differs: either the codec reads the very same places, or the bytes are left alone."""
    whole = bytearray(answer_of(8, 3, rows))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    request = Append(*(count for _, _, count in rows))
    entries: dict[int, Any] = {8: request, 1: Pending(34, 0, 0, _fail, 0), 9: Append(2)}
    size = taken(bytes(whole), entries)
    if not size:
        assert set(entries) == {8, 1, 9}
        assert request.places is None
        return
    assert (size, set(entries)) == (len(whole), {1, 9})
    (frame,) = FrameDecoder(new_scratch(), FrameBudget(1 << 20)).feed(whole)
    response = decode_response(frame, request.request_code)
    header: Any = response.header
    assert (response.code, response.opaque) == (ResponseCode.SUCCESS, 8)
    decoded = [(offset, runs[0][0], runs[0][1]) for code, offset, runs, _ in header.results if code == 0]
    assert decoded == [
        (offset, start, count) for (offset, start), count in zip(request.places, request.counts, strict=True)
    ]


def test_numbers_that_the_decoder_refuses_are_left_to_it() -> None:
    """Each above a Java long."""
    big = 2**63
    for rows, timestamp in (([(big, 1, 1)], 0), ([(1, big, 1)], 0), ([(1, 1, 1)], big), ([(big, 1, 1), (1, 1, 1)], 0)):
        data = answer_of(8, timestamp, rows)
        request = Append(*(1 for _ in rows))
        assert taken(data, {8: request}) == 0
        (frame,) = FrameDecoder(new_scratch(), FrameBudget(1 << 20)).feed(data)
        try:
            decode_response(frame, request.request_code)
        except HeaderIllegal:
            continue
        raise AssertionError(rows)


@given(st.binary(max_size=200))
def test_garbage_is_left_to_the_decoder(data: bytes) -> None:
    """It neither raises nor settles."""
    request = Append(1)
    assert taken(data, {0: request}) == 0
    assert request.places is None


def test_an_answer_that_does_not_fit_its_request_is_left_to_the_decoder() -> None:
    """Another opaque, other counts, more or fewer sections, a request of another kind; or answered twice."""
    one, two = answer_of(8, 3, TWO[:1]), answer_of(8, 3, TWO)
    for data, entries in (
        (one, {7: Append(1)}),
        (one, {8: Append(2)}),
        (one, {8: Append(1, 3)}),
        (one, {8: Pending(34, 0, 0, _fail, 0)}),
        (two, {8: Append(1)}),
        (two, {8: Append(1, 2)}),
        (two, {8: Append(1, 3, 1)}),
    ):
        waiting: dict[int, Any] = dict(entries)
        assert taken(data, waiting) == 0
        assert len(waiting) == 1
    assert taken(one + one, {8: Append(1)}) == len(one)


def test_what_follows_the_answers_is_left_to_the_decoder() -> None:
    """A refusal, a half answer: those before are settled."""
    requests = {at: Append(1) for at in range(3)}
    entries: dict[int, Any] = dict(requests)
    refusal = b"".join(encode_response(2, 1, requests[1].request_code, remark="busy", serialize_type=MSGPACK))
    data = answer_of(0, 3, TWO[:1])
    last = answer_of(2, 3, TWO[:1])
    assert taken(data + refusal + last, entries) == len(data)
    assert taken(last[:-1], entries) == 0
    assert set(entries) == {1, 2}


def test_the_fault_of_one_request_does_not_stop_the_others() -> None:
    """It is reported."""

    class Bad(Append):
        def stored(self, places: Any, /) -> None:
            raise ValueError("its own")

    good = Append(1)
    faults: list[Exception] = []
    data = answer_of(0, 3, TWO[:1]) + answer_of(1, 3, TWO) + answer_of(2, 3, TWO[:1])
    assert taken(data, {0: Bad(1), 1: Bad(1, 3), 2: good}, faults.append) == len(data)
    assert [str(fault) for fault in faults] == ["its own", "its own"]
    assert good.places == [(1, 2)]


@given(st.data())
def test_the_decoder_gets_what_is_not_read_in_place(data: Any) -> None:
    """Whatever comes mixed, in pieces of any size: each frame is read once, in place or decoded, in order."""
    kinds = data.draw(st.lists(st.sampled_from(["short", "usual", "refused"]), min_size=1, max_size=12))
    requests = {at: Append(1) for at in range(len(kinds))}
    entries: dict[int, Any] = dict(requests)
    stream = b""
    for at, kind in enumerate(kinds):
        header = NativeAppendResponseHeader(3, [(0, 1, [(2, 1)], "")])
        code = 0 if kind == "usual" else 2
        usual = encode_response(
            code, at, requests[at].request_code, header=header if not code else None, serialize_type=MSGPACK
        )
        stream += answer_of(at, 3, TWO[:1]) if kind == "short" else b"".join(usual)
    decoder = FrameDecoder(new_scratch(), FrameBudget(1 << 20))
    decoder.in_place = ShortAnswers(entries, _fail).take
    seen: dict[int, int] = {}
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        for frame in decoder.feed(stream[:size]):
            try:
                response = decode_response(frame, RequestCode.NATIVE_APPEND)
            except WrongDirection as error:
                raise AssertionError from error
            seen[response.opaque] = response.code
            assert entries.pop(response.opaque).places is None
        stream = stream[size:]
    assert not entries
    for at, kind in enumerate(kinds):
        assert (at in seen) != (requests[at].places is not None)
        assert kind == "short" or seen[at] == (2 if kind == "refused" else 0)
