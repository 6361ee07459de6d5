"""One flipped bit anywhere in a small store: the table of ``bit_flips`` holds. ``make torture`` tries every bit."""

from pathlib import Path

import pytest

from tests.sim.bit_flips import (
    FIELDS,
    LOG,
    OTHER_FILES,
    check_log_bit,
    check_other_bit,
    record_header_is_whole,
    small_store,
    used_bits,
)


@pytest.mark.slow
@pytest.mark.parametrize("checksums", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_flipped_bit_of_the_log(checksums: bool) -> None:
    """One bit in each byte, a different one from byte to byte: one message is lost at most, and silently only where the
    table allows it.
    """
    assert record_header_is_whole()
    small = small_store(checksums=checksums)
    for at in range(small.bounds[-1]):
        check_log_bit(small, at * 8 + (at * 5 + 3) % 8, checksums=checksums)


@pytest.mark.slow
@pytest.mark.parametrize("clean", [pytest.param(True, marks=pytest.mark.soak), False])
def test_a_flipped_bit_of_any_other_file(clean: bool) -> None:
    """Consume queues, index, checksums, positions, checkpoint: no wrong message appears."""
    small = small_store(checksums=True, clean=clean)
    seen = set()
    for path, bit in used_bits(small.files, every=7):
        check_other_bit(small, path, bit)
        seen.add(path.split("/")[3])
    assert {"consumequeue", "index", "checksums"} <= seen or not clean


@pytest.mark.slow
@pytest.mark.parametrize("checksums", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_cut_at_every_byte_of_the_last_two_records(checksums: bool) -> None:
    """Messages before the cut stay, later ones are gone, none is invented, and the log continues there."""
    small = small_store(checksums=checksums)
    from tests.sim.checkers import SimStore, check, close_quietly

    for cut in range(small.bounds[-3], small.bounds[-1]):
        files = small.files.after_kill()
        files.inode(LOG).data[cut:] = 0
        whole = sum(end <= cut for end in small.bounds[1:])
        ledger = small.ledger.copy()
        ledger.kill_safe = {place: body for place, body in ledger.kill_safe.items() if place[2] < whole}
        sim = SimStore(files, ledger, group_checksums=checksums)
        assert sim.report.end_offset == small.bounds[whole], cut
        assert len(check(sim.store, ledger)) == whole
        sim.append([17])
        again = SimStore(sim.files.after_kill(), ledger, group_checksums=checksums)
        assert len(check(again.store, ledger)) == whole + 1
        close_quietly(again)


def test_a_damaged_size_does_not_make_a_torn_tail() -> None:
    """The size led into the record, to zeros that looked like unused space, and the messages behind it were cut."""
    small = small_store(checksums=False)
    check_log_bit(small, (small.bounds[3] + 3) * 8 + 5, checksums=False)


def test_the_page_about_durability_shows_these_outcomes() -> None:
    """A change of a flipped bit's effect changes what the page promises."""
    page = (Path(__file__).parents[2] / "docs" / "durability.md").read_text()
    for field, (with_checksum, without) in FIELDS.items():
        assert f"| {field} | {', '.join(sorted(with_checksum))} | {', '.join(sorted(without))} |" in page
    for name, outcomes in OTHER_FILES.items():
        assert f"| `{name}` | {', '.join(sorted(outcomes))} |" in page
