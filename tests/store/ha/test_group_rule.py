"""A slave's record of its master's count of copies, and the end of a fence."""

from pathlib import Path

import pytest

from pocketmq.store.errors import CorruptStore
from pocketmq.store.ha.state import FencedBy, GroupRule
from tests.store.ha.test_state import state_of


def test_the_rule_of_the_master_outlives_the_slave(tmp_path: Path) -> None:
    """A slave that starts again while its master is away still knows how many promises a promotion needs."""
    state = state_of(tmp_path)
    assert state.group is None
    assert state.follow(3, "a.1", acks_confirm=True, group=GroupRule("SYNC_MASTER", 2, 3))
    assert state_of(tmp_path).group == GroupRule("SYNC_MASTER", 2, 3)
    assert not state.follow(2, "b.1", acks_confirm=True, group=GroupRule("SYNC_MASTER", 2, 2))
    assert state.group == GroupRule("SYNC_MASTER", 2, 3)


def test_a_fence_ends_with_the_order_to_lead_not_with_the_promise(tmp_path: Path) -> None:
    """Promising itself a newer epoch is only the first half of a promotion."""
    state = state_of(tmp_path)
    state.open_epoch(0)
    assert state.fence(1_000_000, "b.1", "10.0.0.2:10911")
    state.set_role("SYNC_MASTER", 0)
    assert state.fenced_by == FencedBy(1_000_000, "b.1", "10.0.0.2:10911")
    assert state.promise(2_000_000, state.new_owner())
    assert state_of(tmp_path).fenced_by == FencedBy(1_000_000, "b.1", "10.0.0.2:10911")
    state.set_role("SYNC_MASTER", 0)
    again = state_of(tmp_path)
    assert again.fenced_by is None
    assert again.open_epoch(10).number == 2_000_000


def test_a_state_that_was_removed_is_not_made_again(tmp_path: Path) -> None:
    """Forgotten promises would be broken: the backup shows that there were some."""
    state = state_of(tmp_path)
    state.promise(1_000_000, "b.1")
    (tmp_path / "pocketmq" / "ha.json").unlink()
    with pytest.raises(CorruptStore, match="it is missing"):
        state_of(tmp_path)
