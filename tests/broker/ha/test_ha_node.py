"""What a master says that another epoch has replaced."""

from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.broker.ha.ha_node import HaNode
from pocketmq.cli.admin.ha import group_rows, remarks
from pocketmq.remoting.protocol.ha import HaStatusBody
from pocketmq.store.ha.state import FencedBy

OWN, OTHER = "10.0.0.1:10911", "10.0.0.2:10911"


@pytest.mark.parametrize(
    ("replacer", "said", "not_said"),
    [
        (
            OTHER,
            f"was replaced by {OTHER} in epoch 7 (send there; to let this broker follow: pocketmq ha demote p",
            "?",
        ),
        (OWN, "was replaced by the store that this address had before in epoch 7 (this store is new", "demote"),
        ("", "was replaced in epoch 7 (send there; to let this broker follow: pocketmq ha demote p", "?"),
    ],
)
def test_a_new_store_under_an_old_name_is_not_sent_to_itself_nor_told_to_follow(
    replacer: str, said: str, not_said: str
) -> None:
    """A name server that kept the epoch names the address of the former store: as a slave, it would have no master."""
    node: Any = object.__new__(HaNode)
    node._fenced_by, node.address = FencedBy(7, "owner", replacer), OWN
    node.role = SimpleNamespace(config=SimpleNamespace(broker_name="p"))
    refusal: Any = node.refusal()
    assert said in refusal.remark
    assert not_said not in refusal.remark


def test_ha_status_offers_it_a_promotion_instead() -> None:
    """``ha demote`` is for a master that another broker has replaced."""

    def group(replacer: str) -> Any:
        node = HaStatusBody(
            broker_name="p",
            address=OWN,
            role="SYNC_MASTER",
            fenced_by_epoch=7,
            fenced_by_address=replacer,
        )
        return SimpleNamespace(broker_name="p", leader=None, others=[node], nodes={OWN: node}, silent={}, record=None)

    assert any("ha demote" in line for line in remarks(group(OTHER)))
    assert remarks(group(OWN)) == ["p has no master: pocketmq ha promote p"]
    assert "this address had another one" in group_rows(group(OWN))[0][-1]
    assert f"by {OTHER}" in group_rows(group(OTHER))[0][-1]
