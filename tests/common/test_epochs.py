"""Epoch numbers: promotions, sets of slaves, and how far ahead an epoch may be."""

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.epochs import (
    EPOCH_PROMISED_MAX,
    EPOCH_UNKNOWN_MAX,
    MEMBERS_STEP,
    PROMOTION_STEP,
    highest_allowed,
    members_of,
    next_members,
    next_promotion,
    steps_to,
)


def test_the_numbers_of_promotions() -> None:
    """A promotion's epoch is above all known ones and above any number the old master may count up to."""
    assert next_promotion(0) == next_promotion(PROMOTION_STEP - 1) == PROMOTION_STEP
    assert next_members(0) == next_members(MEMBERS_STEP - 1) == MEMBERS_STEP
    assert PROMOTION_STEP % MEMBERS_STEP == 0, "a promotion begins a new set"
    assert members_of(0) < members_of(1) == members_of(MEMBERS_STEP - 1) < members_of(MEMBERS_STEP)
    assert next_promotion(PROMOTION_STEP) == next_promotion(PROMOTION_STEP + 7) == 2 * PROMOTION_STEP


@given(st.integers(0, EPOCH_UNKNOWN_MAX), st.integers(0, 50 * PROMOTION_STEP))
def test_every_step_to_an_epoch_is_allowed_after_the_one_before(known: int, ahead: int) -> None:
    """The steps rise and end at the epoch; none is further ahead than a promise may be."""
    steps = list(steps_to(known + ahead, known))
    assert steps[-1] == known + ahead
    for before, step in zip([known, *steps], steps, strict=False):
        assert before <= step <= highest_allowed(before)


def test_a_promotion_is_always_allowed_and_has_room() -> None:
    """A promotion is allowed even after the highest epoch that a name server accepts without knowing the broker."""
    for known in (0, 1, PROMOTION_STEP, EPOCH_UNKNOWN_MAX):
        assert next_promotion(known) <= highest_allowed(known) < EPOCH_PROMISED_MAX
