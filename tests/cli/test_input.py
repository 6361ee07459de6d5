"""Lines and keys of ``pocketmq produce``."""

import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.cli.input import InputFailed, InputFile, LineParser, LineSplitter
from pocketmq.common.errors import MessageIllegal


@given(
    st.lists(st.binary(max_size=20).filter(lambda b: b"\n" not in b and not b.endswith(b"\r"))),
    st.randoms(),
    st.booleans(),
)
def test_any_split_of_the_input_gives_the_same_lines(lines: list[bytes], rng: Random, ended: bool) -> None:
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    expected = lines if ended or not lines or lines[-1] else lines[:-1]
    splitter, got = LineSplitter(), []
    while data:
        cut = rng.randint(1, len(data))
        got += splitter.feed(data[:cut])
        data = data[cut:]
    assert got + splitter.finish() == expected


def test_windows_line_ends_are_not_part_of_a_line() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"a\r\nb\r") == [b"a"]
    assert splitter.feed(b"\nc\r") == [b"b"]
    assert splitter.finish() == [b"c"]


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    splitter = LineSplitter(line_bytes_max=100)
    splitter.feed(b"x" * 90)
    with pytest.raises(MessageIllegal, match="line refused"):
        splitter.feed(b"x" * 20)


def test_a_key_before_a_separator() -> None:
    message = LineParser("T", tags="A", key_separator=b"\t", sharding=True).parse(b"k1\tbody\twith tab")
    assert (message.topic, message.body, message.keys_text, message.tags) == ("T", b"body\twith tab", "k1", "A")
    assert message.sharding_key == "k1"


def test_a_key_in_a_json_field() -> None:
    parser = LineParser("T", key_field="id")
    assert parser.parse(b'{"id": "x", "n": 1}').keys_text == "x"
    assert parser.parse(b'{"id": 17}').keys_text == "17"
    assert parser.parse(b'{"id": 17}').sharding_key is None
    assert parser.parse(b'{"id": 17}').body == b'{"id": 17}'


@pytest.mark.parametrize(
    ("parser", "line", "told"),
    [
        (LineParser("T", key_separator=b":"), b"no separator", "--key-sep must be in each line"),
        (LineParser("T", key_separator=b":"), b"\xff:x", "is not UTF-8"),
        (LineParser("T", key_field="id"), b"{not json", "is not JSON"),
        (LineParser("T", key_field="id"), b'{"di": 1}', "no field 'id'"),
        (LineParser("T", key_field="id"), b"[1]", "no field 'id'"),
    ],
)
def test_a_line_without_its_key_is_refused(parser: LineParser, line: bytes, told: str) -> None:
    with pytest.raises(InputFailed) as caught:
        parser.parse(line)
    assert told in str(caught.value)


async def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"x" * 300_000)
    file = InputFile(str(path))
    assert file.size_bytes == 300_000
    assert [len(chunk) async for chunk in file.chunks()] == [262_144, 37_856]


async def test_a_pipe_gives_what_is_there_without_waiting_for_more(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    file = InputFile(str(path))
    assert file.size_bytes is None
    chunks = file.chunks()
    os.write(writer, b"a\n")
    assert await anext(chunks) == b"a\n"
    os.write(writer, b"b\n")
    os.close(writer)
    assert [chunk async for chunk in chunks] == [b"b\n"]


async def test_what_never_waits_is_read_too() -> None:
    assert [chunk async for chunk in InputFile("/dev/null").chunks()] == []


def test_a_file_that_is_not_there_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(InputFailed, match="No such file"):
        InputFile(str(tmp_path / "none"))


async def test_a_directory_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(InputFailed, match="Is a directory"):
        [chunk async for chunk in InputFile(str(tmp_path)).chunks()]
