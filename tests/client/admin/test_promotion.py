"""Which node may be promoted, judged from the reports of nodes and name servers."""

import pytest

from pocketmq.client.admin.ha_admin import Group, HaFailed
from pocketmq.client.admin.promotion import _check_name_servers, _choose
from pocketmq.client.admin.promotion_rules import Opened, counted, lacks, newest_opened
from pocketmq.common.epochs import MEMBERS_STEP, PROMOTION_STEP
from pocketmq.remoting.protocol.ha import HaEpochBody, HaEpochResponseHeader, HaPromiseResponseHeader, HaStatusBody


def node(address: str, role: str = "SLAVE", epoch: int = 1, end: int = 100, **fields: object) -> HaStatusBody:
    """Return the report of a broker of the name."""
    status = HaStatusBody(
        broker_name="a",
        address=address,
        role=role,
        node_id=address,
        epoch=epoch,
        epochs=[HaEpochBody(epoch, f"{address}.1", 0)],
        end_offset=end,
        in_sync_replicas=2,
        total_replicas=3,
        broker_id=0 if role != "SLAVE" else 1,
    )
    for name, value in fields.items():
        setattr(status, name, value)
    return status


def group(*nodes: HaStatusBody) -> Group:
    """Return a name with these nodes."""
    return Group("a", {each.address: each for each in nodes})


def test_the_most_advanced_is_chosen_by_epoch_then_length() -> None:
    """A longer log of an older epoch is not the more advanced one."""
    found = group(node("one", end=500, epoch=1), node("two", end=300, epoch=2), node("three", end=200, epoch=2))
    assert _choose(found, "", force=False).address == "two"
    with pytest.raises(HaFailed, match="three ends at 200 in epoch 2, two at 300"):
        _choose(found, "three", force=False)
    assert _choose(found, "three", force=True).address == "three"
    with pytest.raises(HaFailed, match="no broker of this name"):
        _choose(found, "four", force=True)


def test_a_slave_behind_may_be_named_while_the_master_lives() -> None:
    """It catches up before the master is fenced, so ``--to`` may name it."""
    found = group(node("m", "SYNC_MASTER"), node("one", end=500), node("two", end=10))
    assert _choose(found, "two", force=False).address == "two"
    with pytest.raises(HaFailed, match="is the master of a already"):
        _choose(found, "m", force=False)


def test_the_leader_has_the_newest_epoch_and_a_fenced_master_is_none() -> None:
    """Of two nodes that think they lead, the newer one leads; the other counts as any node."""
    stale, leader = node("old", "ASYNC_MASTER", epoch=3), node("new", "ASYNC_MASTER", epoch=PROMOTION_STEP)
    fenced = node("gone", "ASYNC_MASTER", epoch=9, fenced_by_epoch=PROMOTION_STEP)
    found = group(stale, leader, fenced)
    assert found.leader is leader
    assert [each.address for each in found.others] == ["gone", "old"]
    assert found.highest_epoch == PROMOTION_STEP


def test_how_many_must_promise() -> None:
    """total - in_sync + 1 of a synchronous group, one of an asynchronous one."""
    found = group(node("one"), node("two"))
    assert found.promises_needed("SYNC_MASTER") == 2
    assert found.promises_needed("ASYNC_MASTER") == 1


def test_the_role_is_the_leaders_the_name_servers_or_the_strict_one() -> None:
    """A promotion never lowers the promised durability, even if no node remembers the promise."""
    assert group(node("m", "ASYNC_MASTER"), node("s")).role == "ASYNC_MASTER"
    alone = group(node("s"))
    assert alone.role == "SYNC_MASTER"
    alone.name_servers = {"ns": HaEpochResponseHeader(False, 1, "m.1", "m", "ASYNC_MASTER")}
    assert alone.role == "ASYNC_MASTER"


def test_a_majority_of_the_name_servers_must_be_there() -> None:
    """One of two is no majority; ``--force`` goes on."""
    known = HaEpochResponseHeader(False)
    found = group(node("s"))
    found.name_servers = {"one": known, "two": None}
    with pytest.raises(HaFailed, match="1 of 2 name servers answer"):
        _check_name_servers(found, force=False)
    _check_name_servers(found, force=True)
    found.name_servers = {"one": known, "two": None, "three": known}
    _check_name_servers(found, force=False)


def test_a_log_without_the_newest_counted_slaves_may_not_lead() -> None:
    """A name server, another log, or a node that followed the master later, shows that it was replaced."""
    replaced = node("s1", epoch=1)
    found = group(replaced)
    found.name_servers = {"ns": HaEpochResponseHeader(False, MEMBERS_STEP, "m.1", "m")}
    assert newest_opened(found, replaced) == Opened(MEMBERS_STEP, "name server ns knows it from m")
    assert lacks(replaced.last_epoch, newest_opened(found, replaced))
    for other in (node("s2", epoch=MEMBERS_STEP + 3), node("s2", epoch=1, promised_epoch=MEMBERS_STEP)):
        found = group(replaced, other)
        assert lacks(replaced.last_epoch, newest_opened(found, replaced))
    restarted = group(replaced, node("m", "SYNC_MASTER", epoch=MEMBERS_STEP - 1))
    assert not lacks(replaced.last_epoch, newest_opened(restarted, replaced)), "the same slaves count after a restart"


def test_a_promotion_that_was_not_finished_does_not_stand_in_its_own_way() -> None:
    """A node that claimed an epoch and never opened it may try again; other nodes cannot know it was not opened."""
    candidate, other = node("s1"), node("s2", promised_epoch=PROMOTION_STEP)
    found = group(candidate, other)
    found.name_servers = {"ns": HaEpochResponseHeader(False, PROMOTION_STEP, "s1.9", "s1")}
    assert not lacks(candidate.last_epoch, newest_opened(found, candidate))
    assert lacks(other.last_epoch, newest_opened(found, other))


def test_a_slave_that_is_not_counted_has_no_epoch() -> None:
    """It has copied the log and confirmed nothing: it may not lead, and its promise does not count."""
    learner = node("s2", end=500, is_counted=False)
    found = group(node("s1", end=100), learner)
    assert _choose(found, "", force=False).address == "s1"
    assert lacks(learner.last_epoch, newest_opened(group(learner, node("s1")), learner))


def test_promises_of_replaced_nodes_do_not_count() -> None:
    """They do not know the later confirmations."""

    def answer(last_epoch: int) -> HaPromiseResponseHeader:
        return HaPromiseResponseHeader(True, PROMOTION_STEP, "x.1", last_epoch, 100)

    granted = {"s1": answer(1), "s2": answer(MEMBERS_STEP + 1), "s3": answer(MEMBERS_STEP)}
    assert counted(granted, Opened(1, "")).keys() == {"s2", "s3"}, "one of the answers knows of the newer set"
    assert counted(granted, Opened(2 * MEMBERS_STEP, "")) == {}
    assert counted({"s1": answer(5)}, Opened(1, "")).keys() == {"s1"}
