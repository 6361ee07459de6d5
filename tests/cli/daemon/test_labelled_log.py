"""One log for several processes: whole lines, their names, and an output that nobody reads."""

import io
import json
import os
import threading

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.cli.daemon import labelled_log
from pocketmq.cli.daemon.labelled_log import LabelledLog, LineSplitter


def written(*lines: tuple[str, bytes], as_json: bool = False) -> list[bytes]:
    stream = io.BytesIO()
    log = LabelledLog(stream, width=9, as_json=as_json)
    for name, line in lines:
        log.write(name, line)
    log.tell("it ended")
    log.close()
    return stream.getvalue().splitlines()


def test_the_name_is_in_front() -> None:
    assert written(("broker-a", b"one"), ("namesrv", b"two")) == [
        b"broker-a  | one",
        b"namesrv   | two",
        b"cluster   | it ended",
    ]


def test_the_name_is_in_each_json_line() -> None:
    lines = written(("a", b'{"event":"x","n":1}'), ("a", b"{}"), ("b", b"Traceback \xff"), as_json=True)
    assert [json.loads(line) for line in lines] == [
        {"process": "a", "event": "x", "n": 1},
        {"process": "a"},
        {"process": "b", "text": "Traceback \N{REPLACEMENT CHARACTER}"},
        {"process": "cluster", "text": "it ended"},
    ]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_any_split_of_the_stream_gives_the_same_lines(data: bytes, cuts: list[int]) -> None:
    splitter, lines, at = LineSplitter(), [], 0
    for cut in [*sorted(cuts), len(data)]:
        lines += splitter.feed(data[at:cut])
        at = max(at, cut)
    lines += splitter.end()
    expected = data.split(b"\n")
    assert lines == (expected if expected[-1] else expected[:-1])


def test_a_line_without_end_is_cut() -> None:
    splitter = LineSplitter(line_bytes_max=4)
    assert splitter.feed(b"abcdefghij") == [b"abcd", b"efgh"]
    assert splitter.end() == [b"ij"]


class Blocked:
    """A stream that takes nothing until it is released, then three bytes at a time."""

    def __init__(self) -> None:
        self.entered, self.released = threading.Event(), threading.Event()
        self.data = b""

    def write(self, data: memoryview) -> int:
        self.entered.set()
        self.released.wait()
        part = bytes(data[:1000])
        self.data += part
        return len(part)


def test_an_output_that_is_not_read_keeps_a_bounded_number_of_lines() -> None:
    stream = Blocked()
    log = LabelledLog(stream, width=1, as_json=False)
    log.write("a", b"first")
    assert stream.entered.wait(30)
    line = b"x" * 100_000
    for _ in range(200):
        log.write("a", line)
    stream.released.set()
    log.close(30)
    kept = labelled_log.QUEUE_BYTES_MAX // (len(line) + 5)
    assert stream.data.count(line) == kept
    assert b"%d lines left out" % (200 - kept) in stream.data


def test_a_closed_output_stops_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with io.FileIO(writer, "w") as stream:
        log = LabelledLog(stream, width=1, as_json=False)
        log.write("a", b"one")
        log.write("a", b"two")
        log.close(30)
