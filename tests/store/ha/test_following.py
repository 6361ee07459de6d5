"""A slave's reaction to a WELCOME: it cuts only differing bytes, and no confirmed ones."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.epochs import EPOCH_UNKNOWN_MAX, PROMOTION_STEP
from pocketmq.store.ha.epochs import Epoch, EpochTable, common_end
from pocketmq.store.ha.following import SlaveView, Step, WelcomeRefused, check_number, judge_welcome
from pocketmq.store.ha.wire import Welcome

SEGMENT_BYTES = 100
STARTS = st.lists(st.integers(0, 500), min_size=1, max_size=4).map(sorted)


def table(starts: list[int], owner: str) -> EpochTable:
    return EpochTable(Epoch(number + 1, f"{owner}{number}", start) for number, start in enumerate(starts))


def welcome_of(epochs: EpochTable, end: int, start: int, **changes: object) -> Welcome:
    last = epochs.last
    assert last is not None
    fields: dict[str, object] = {
        "epochs": [(entry.number, entry.owner, entry.start_offset) for entry in epochs.entries],
        "epoch": last.number,
        "owner": last.owner,
        "role": "SYNC_MASTER",
        "min_offset": 0,
        "end_offset": end,
        "start_offset": start,
        "in_sync_replicas": 2,
        "total_replicas": 2,
        "segment_bytes": SEGMENT_BYTES,
    }
    return msgspec.convert(fields | changes, Welcome)


def view_of(epochs: EpochTable, end: int, confirmed_offset: int = 0, accept_loss: bool = False) -> SlaveView:
    return SlaveView(
        epochs=epochs.cut(end),
        min_offset=0,
        end_offset=end,
        segment_bytes=SEGMENT_BYTES,
        confirmed_offset=confirmed_offset,
        accept_loss=accept_loss,
    )


@given(STARTS, STARTS, st.integers(0, 4), st.integers(1, 600), st.integers(0, 600), st.integers(0, 600), st.booleans())
def test_nothing_confirmed_is_cut(
    mine: list[int], theirs: list[int], shared: int, end: int, more: int, confirmed: int, accept_loss: bool
) -> None:
    """For any two histories, a decision keeps the common and confirmed part, unless loss was accepted."""
    both = mine[:shared]
    my_table = table(mine, "a")
    rest = [start for start in theirs if not both or start >= both[-1]]
    their_table = EpochTable(
        [
            *my_table.entries[: len(both)],
            *(Epoch(100 + number, f"b{number}", start) for number, start in enumerate(rest)),
        ]
    )
    if their_table.last is None:
        return
    their_end = their_table.last.start_offset + more
    common = common_end(my_table.cut(end), end, their_table, their_end)
    welcome = welcome_of(their_table, their_end, common or 0)
    view = view_of(my_table, end, confirmed_offset=confirmed, accept_loss=accept_loss)
    try:
        decision = judge_welcome(welcome, view)
    except WelcomeRefused:
        assert common is None or (common < end and common < confirmed)
        assert not accept_loss
        return
    if decision.step is Step.DROP:
        assert common is None
        assert accept_loss
    else:
        assert decision.offset == common
        assert decision.step is (Step.FOLLOW if common == end else Step.CUT)
        assert common >= min(confirmed, end) or accept_loss


def test_a_master_that_is_wrong_about_the_start_is_not_believed() -> None:
    """A start below or above the common part is refused: it would cost bytes, or leave foreign ones."""
    epochs = table([0, 300], "a")
    for start in (0, 299, 350):
        with pytest.raises(WelcomeRefused, match="continue at"):
            judge_welcome(welcome_of(epochs, 400, start), view_of(epochs, 320))
    assert judge_welcome(welcome_of(epochs, 400, 320), view_of(epochs, 320)).step is Step.FOLLOW


def test_an_empty_slave_starts_where_the_master_begins_and_nowhere_else() -> None:
    """The start must be the master's first byte, at the border of a segment."""
    epochs = table([0, 300], "a")
    empty = view_of(EpochTable(), 0)
    assert judge_welcome(welcome_of(epochs, 400, 200, min_offset=200), empty).step is Step.START_AT
    for start, first in ((250, 200), (200, 100), (150, 150)):
        with pytest.raises(WelcomeRefused, match="empty slave"):
            judge_welcome(welcome_of(epochs, 400, start, min_offset=first), empty)


def test_a_log_behind_the_masters_first_byte_is_given_up_unless_it_was_confirmed() -> None:
    """Retention was faster: the slave has no byte left to continue from."""
    epochs = table([0], "a")
    welcome = welcome_of(epochs, 900, 500, min_offset=500)
    decision = judge_welcome(welcome, view_of(epochs, 320, confirmed_offset=320))
    assert (decision.step, decision.offset) == (Step.DROP, 500)
    other = EpochTable([Epoch(1, "a0", 0), Epoch(9, "b", 100)])
    with pytest.raises(WelcomeRefused, match="confirmed"):
        judge_welcome(welcome_of(other, 900, 500, min_offset=500), view_of(epochs, 320, confirmed_offset=320))


def test_other_segment_sizes_are_refused() -> None:
    """Raw bytes fit only into segments of the same size."""
    epochs = table([0], "a")
    with pytest.raises(WelcomeRefused, match="segments have 200 bytes"):
        judge_welcome(welcome_of(epochs, 400, 320, segment_bytes=200), view_of(epochs, 320))


def test_a_slave_follows_no_epoch_that_no_promotion_can_have_reached() -> None:
    """Where a name server names the newest epoch, two promotions above it; else up to the most that is ever unknown."""
    check_number(3 * PROMOTION_STEP - 1, 5, 1)
    with pytest.raises(WelcomeRefused, match="beyond 2999999"):
        check_number(3 * PROMOTION_STEP, 5, 1)
    check_number(900 * PROMOTION_STEP, 5, 0)
    with pytest.raises(WelcomeRefused, match="A false epoch"):
        check_number(EPOCH_UNKNOWN_MAX + 1, 5, 0)
