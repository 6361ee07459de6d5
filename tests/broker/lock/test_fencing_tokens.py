"""Tokens of locks: above all earlier ones, whatever happens to the process, the file, the clock."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.lock.fencing_tokens import BLOCK, FencingTokens
from pocketmq.broker.persisted_table import PersistedTable
from pocketmq.common.events import NullLog
from pocketmq.store.disk.os_file_system import OsFileSystem

NOW_MS = 1_700_000_000_000


def opened(path: Path, now_ms: int = NOW_MS) -> FencingTokens:
    tokens = FencingTokens(lambda: now_ms)
    file = PersistedTable(tokens, str(path), OsFileSystem(), NullLog())
    file.load()
    tokens.open(file.persist)
    return tokens


def take(tokens: FencingTokens, count: int) -> list[int]:
    tokens.reserve(count)
    return [tokens.next() for _ in range(count)]


@given(st.lists(st.tuples(st.integers(1, BLOCK), st.integers(-(10**9), 10**9)), min_size=1, max_size=6))
def test_a_killed_broker_goes_on_above(tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[int, int]]) -> None:
    """Each run takes some and is killed; clocks move in both directions between runs."""
    path, highest, now_ms = tmp_path_factory.mktemp("tokens") / "t.json", 0, NOW_MS
    for count, jump_ms in runs:
        now_ms += jump_ms
        tokens = take(opened(path, now_ms), count)
        assert tokens[0] > highest
        assert tokens == list(range(tokens[0], tokens[0] + count))
        highest = tokens[-1]


def test_the_backup_of_the_file_is_good_enough(tmp_path: Path) -> None:
    """It is one write older than the file that a power failure destroyed."""
    path = tmp_path / "t.json"
    tokens = opened(path)
    for _ in range(5):
        last = take(tokens, BLOCK)[-1]
    path.write_bytes(b"\0" * 20)
    assert take(opened(path, 0), 1)[0] > last


def test_a_lost_file_is_no_reason_to_begin_anew(tmp_path: Path) -> None:
    """The wall time replaces it: it is above every earlier token, since those began at an earlier wall time."""
    last = take(opened(tmp_path / "t.json"), 10)[-1]
    for path in tmp_path.iterdir():
        path.unlink()
    assert take(opened(tmp_path / "t.json", NOW_MS + 1000), 1)[0] > last


def test_nothing_is_given_that_the_file_does_not_cover(tmp_path: Path) -> None:
    """While the disk refuses the write, no tokens are issued; once it works again, they are."""
    tokens, works = FencingTokens(lambda: NOW_MS), False

    def persist() -> None:
        if not works:
            raise OSError(28, "No space left on device")

    tokens.open(persist)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            tokens.reserve(1)
        assert tokens.left == 0
    works = True
    assert take(tokens, 3) == [NOW_MS, NOW_MS + 1, NOW_MS + 2]


def test_the_file_is_written_once_for_very_many(tmp_path: Path) -> None:
    """A lock must not cost a disk access."""
    path = tmp_path / "t.json"
    tokens = opened(path)
    take(tokens, 1)
    written = path.read_bytes()
    for _ in range(100):
        take(tokens, 100)
    assert path.read_bytes() == written
