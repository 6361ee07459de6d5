"""The memory of a store between two runs."""

import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.checkpoint import CHECKPOINT_BYTES, Checkpoint, Positions
from tests.store.log_fakes import Stepped


def test_the_checkpoint_has_rocketmqs_format() -> None:
    """4096 bytes, three big-endian times at 0, 8 and 16."""
    data = Checkpoint(1, 2, 3).encode()
    assert len(data) == CHECKPOINT_BYTES
    assert struct.unpack_from(">3q", data) == (1, 2, 3)
    assert not any(data[24:])
    assert Checkpoint.decode(data + b"more of 5.3") == Checkpoint(1, 2, 3)
    assert Checkpoint.decode(b"short") == Checkpoint()
    assert Checkpoint.decode(struct.pack(">3q", -1, 5, 5)) == Checkpoint(0, 5, 5)


def test_the_safe_time_is_three_seconds_before_the_earliest() -> None:
    """The index counts only where it is enabled."""
    assert Checkpoint(10_000, 9_000, 4_000).safe_ms() == 6_000
    assert Checkpoint(10_000, 9_000, 4_000).safe_ms(index_safe=True) == 1_000
    assert Checkpoint().safe_ms() == 0


@given(st.integers(0, 2**60), st.booleans(), st.data())
def test_changed_positions_are_not_believed(offset: int, clean: bool, data: st.DataObject) -> None:
    """Positions survive the round trip; after any changed byte they are never read as other positions."""
    positions = Positions(end_offset=offset, clean=clean)
    encoded = bytearray(positions.encode())
    assert Positions.decode(bytes(encoded)) == positions
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    assert Positions.decode(bytes(encoded)) in (None, positions)
    assert Positions.decode(bytes(encoded[: min(at, len(encoded) - 2)])) is None  # the last byte is a newline


def test_a_checkpoint_moves_only_over_what_is_durable(tmp_path: Path) -> None:
    """It covers dispatched and flushed messages, and RocketMQ's times follow one step behind."""
    stepped = Stepped(tmp_path)
    end = stepped.append(b"1")
    stepped.store.checkpoint()
    positions = Positions.decode((tmp_path / "pocketmq" / "positions.json").read_bytes())
    assert positions is not None
    assert (positions.clean, positions.recover_offset) == (False, end)
    assert stepped.store.flushed_offset == end
    stepped.clock.advance_ms(5)
    stepped.append(b"2")
    stepped.store.checkpoint()
    first_ms = stepped.records()[0].store_timestamp
    checkpoint = Checkpoint.decode((tmp_path / "checkpoint").read_bytes())
    assert checkpoint.physic_ms == checkpoint.logics_ms == first_ms
    stepped.store.close()
    checkpoint = Checkpoint.decode((tmp_path / "checkpoint").read_bytes())
    assert checkpoint == Checkpoint(first_ms + 5, first_ms + 5, first_ms + 5)
    assert not (tmp_path / "abort").exists()
