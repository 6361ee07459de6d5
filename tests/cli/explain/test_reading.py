"""Pasted bytes become lines, whatever they are, and no more of them than a paste has."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.cli.explain.reading import READ_BYTES_MAX, lines_of, read_paste

TEXT = "MQBrokerException: CODE: 2  DESC: [OVERLOAD]system busy\nzweite Zeile: \u00e4\u00f6\u00fc"


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "gbk"]
)
def test_the_text_is_read_in_any_encoding(encoding: str) -> None:
    """What is not ASCII may be replaced; known texts are ASCII."""
    lines = lines_of(TEXT.encode(encoding, errors="replace"))
    assert lines[0] == TEXT.splitlines()[0]
    assert lines[1].startswith("zweite Zeile")


def test_a_stack_trace_in_a_line_of_json_becomes_lines() -> None:
    assert lines_of('{"error":"A\\n\\tat b\\nCaused by: C"}') == ['{"error":"A', "\tat b", 'Caused by: C"}']
    assert lines_of("C:\\new\\things") == ["C:\\new\\things"]


@given(st.binary(max_size=300))
def test_no_bytes_are_an_error(data: bytes) -> None:
    assert "".join(lines_of(data)).count("\n") == 0


class Endless(io.RawIOBase):
    """One line without an end; counts what is taken of it."""

    taken = 0

    def read(self, size: int = -1) -> bytes:
        assert size > 0
        self.taken += min(size, 65_536)
        return b"x" * min(size, 65_536)


def test_a_gigabyte_in_one_line_is_not_read() -> None:
    endless = Endless()
    data, more = read_paste(endless)  # type: ignore[arg-type]
    assert (len(data), more) == (READ_BYTES_MAX, True)
    assert endless.taken == READ_BYTES_MAX + 1
    assert read_paste(io.BytesIO(b"x" * READ_BYTES_MAX)) == (b"x" * READ_BYTES_MAX, False)
