"""Which slaves a synchronous master counts, and its steps before it counts another one."""

from pathlib import Path

from pocketmq.common.epochs import MEMBERS_STEP
from pocketmq.store.append_result import PutStatus
from pocketmq.store.ha.members import ADMITTED_MAX
from pocketmq.store.ha.service import COUNT_AGAIN_NS
from tests.store.ha.master import Master
from tests.store.ha.test_state import state_of
from tests.store.ha.transports import ScriptedSlave

OK = PutStatus.PUT_OK


def leave(master: Master, slave: ScriptedSlave) -> None:
    slave.transport.close()
    master.settle()


def test_a_slave_that_takes_a_missing_ones_place_gets_an_epoch_that_the_other_lacks(tmp_path: Path) -> None:
    """The epoch is on disk, and in the answer to the slave, before its confirmations count."""
    master = Master(tmp_path)
    old = master.following(node_id="old")
    first = master.send(b"one")
    old.receive()
    old.ack()
    master.settle()
    leave(master, old)
    new = master.slave("10.0.0.3:5000", node_id="new")
    assert new.welcome is not None
    assert new.welcome.counted
    assert new.welcome.epochs == [
        (master.epoch.number, master.epoch.owner, 0),
        (MEMBERS_STEP, new.welcome.owner, first),
    ]
    state = state_of(tmp_path)
    assert (state.epochs.last_number, state.promised_epoch) == (MEMBERS_STEP, MEMBERS_STEP)
    assert state.slaves.keys() == {"new"}
    new.ack(0)
    master.settle()
    new.receive()
    end = master.send(b"two")
    new.receive()
    new.ack()
    master.settle()
    assert master.told == [(first, OK), (end, OK)]
    (event,) = master.events("slave_replaced")
    assert (event["node_id"], event["gone"], event["epoch"], event["start_offset"]) == (
        "new",
        ["old"],
        MEMBERS_STEP,
        first,
    )
    master.close()
    again = Master(tmp_path, seed=2)
    assert again.epoch.number == MEMBERS_STEP + 1, "a restart counts the same slaves"
    again.close()


def test_who_returns_to_its_own_place_needs_no_new_epoch(tmp_path: Path) -> None:
    """The first slave in a free place needs none either."""
    master = Master(tmp_path, total_replicas=3)
    for node_id in ("one", "two", "one", "two"):
        leave(master, master.following(node_id=node_id))
    assert master.state.epochs.last_number == 1
    assert not master.events("slave_replaced")
    master.close()


def test_the_others_must_connect_again_and_get_the_epoch_first(tmp_path: Path) -> None:
    """No slave has bytes beyond its beginning without it; they keep their places."""
    master = Master(tmp_path, total_replicas=3)
    stays = master.following(node_id="stays")
    leave(master, master.following("10.0.0.3:5000", node_id="leaves"))
    end = master.append(b"one")
    stays.receive()
    new = master.following("10.0.0.4:5000", node_id="new")
    stays.receive()
    assert stays.is_closed
    assert stays.end_offset == end
    assert new.welcome is not None
    assert new.welcome.epochs[-1][2] == end
    assert master.state.slaves.keys() == {"stays", "new"}
    back = master.following(node_id="stays", end_offset=end, epochs=new.welcome.epochs[:1])
    assert back.welcome is not None
    assert (back.welcome.epoch, back.welcome.start_offset) == (MEMBERS_STEP, end)
    assert {slave.node_id for slave in master.ha.status().slaves if slave.is_in_sync} == {"stays", "new"}
    master.close()


def test_a_slave_is_not_counted_before_the_name_servers_know(tmp_path: Path) -> None:
    """It gets the log uncounted; once the name servers answer it must connect again, and counts."""
    master = Master(tmp_path)
    claims: list[tuple[int, str]] = []
    answers = ["no name server answers", ""]

    def claim(number: int, owner: str) -> str:
        claims.append((number, owner))
        return answers[min(len(claims), len(answers)) - 1]

    master.ha.members.claim = claim
    leave(master, master.following(node_id="old"))
    new = master.following("10.0.0.3:5000", node_id="new")
    assert new.welcome is not None
    assert not new.welcome.counted
    end = master.send(b"one")
    new.receive()
    assert new.log == master.log_bytes()
    new.ack()
    master.settle()
    assert master.told == [(end, PutStatus.SLAVE_NOT_AVAILABLE)]
    assert master.state.slaves.keys() == {"old"}, "who may be promoted is still who was counted"
    assert [event["why"] for event in master.events("slave_not_counted")] == ["no name server answers"]
    assert not any(slave.is_in_sync for slave in master.ha.status().slaves)
    master.clock.advance_ms(COUNT_AGAIN_NS // 1_000_000)
    new.ack()
    master.settle()
    new.receive()
    assert new.is_closed
    epochs = new.welcome.epochs
    new = master.following("10.0.0.3:5000", node_id="new", end_offset=end, epochs=epochs)
    assert new.welcome is not None
    assert new.welcome.counted
    assert claims == [(MEMBERS_STEP, new.welcome.owner)] * 2, "the same epoch is claimed again, not another one"
    later = master.send(b"two")
    new.receive()
    new.ack()
    master.settle()
    assert master.told[-1] == (later, OK)
    master.close()


def test_an_epoch_that_was_only_claimed_is_never_opened_under_another_owner(tmp_path: Path) -> None:
    """A restart between the claim and the opening continues after it: the name servers accept that."""
    state = state_of(tmp_path)
    state.open_epoch(0)
    number, owner = state.reserve_members()
    assert number == MEMBERS_STEP
    assert state.is_reserved(number, owner)
    assert not state.is_reserved(number, "other.1")
    again = state_of(tmp_path, seed=2)
    assert again.open_epoch(10).number == MEMBERS_STEP + 1
    assert not again.is_reserved(number, owner), "the newest own epoch is another one now"


def test_a_slave_far_behind_only_gets_the_log_until_it_is_near(tmp_path: Path) -> None:
    """Meanwhile the absent slave has all confirmed messages, and may be promoted."""
    master = Master(tmp_path, ha_slave_fallbehind_max=4000)
    leave(master, master.following(node_id="old"))
    while master.store.committed_offset < 6000:
        master.append(b"x" * 700)
    new = master.slave("10.0.0.3:5000", node_id="new")
    assert new.welcome is not None
    assert not new.welcome.counted
    new.ack(0)
    master.settle()
    new.receive()
    assert new.log == master.log_bytes()
    assert master.state.epochs.last_number == 1
    new.ack()
    master.settle()
    new.receive()
    assert new.is_closed
    assert "its next connection is counted" in str(master.events("slave_disconnected")[-1]["why"])
    new = master.slave("10.0.0.3:5000", node_id="new", end_offset=new.end_offset, epochs=new.welcome.epochs)
    assert new.welcome is not None
    assert (new.welcome.counted, new.welcome.epoch) == (True, MEMBERS_STEP)
    master.close()


def test_one_whose_place_would_be_taken_comes_back_in_time(tmp_path: Path) -> None:
    """The place is its own until the other one counts; then the other one must leave."""
    master = Master(tmp_path)
    master.ha.members.claim = lambda number, owner: "silent"
    leave(master, master.following(node_id="old"))
    new = master.following("10.0.0.3:5000", node_id="new")
    old = master.following(node_id="old")
    assert old.welcome is not None
    assert old.welcome.counted
    new.receive()
    assert new.is_closed
    end = master.send(b"one")
    old.receive()
    old.ack()
    master.settle()
    assert master.told == [(end, OK)]
    master.close()


def test_a_master_that_was_replaced_counts_nobody_new(tmp_path: Path) -> None:
    """It promised while it waited for the name servers: the epoch is not opened."""
    master = Master(tmp_path)
    leave(master, master.following(node_id="old"))

    def claim(number: int, owner: str) -> str:
        assert master.ha.fence(1_000_000, "other.1", "")
        return ""

    master.ha.members.claim = claim
    new = master.slave("10.0.0.3:5000", node_id="new")
    assert new.welcome is None
    assert master.state.epochs.last_number == 1
    assert master.state.slaves.keys() == {"old"}
    master.close()


def test_another_rule_begins_a_new_set(tmp_path: Path) -> None:
    """Slaves now need more confirmations: an earlier one has all of them only from the new epoch on."""
    master = Master(tmp_path, in_sync_replicas=2, total_replicas=3)
    master.following(node_id="one")
    master.close()
    master = Master(tmp_path, seed=2, in_sync_replicas=2, total_replicas=3)
    assert master.epoch.number == 2
    master.close()
    master = Master(tmp_path, seed=3, in_sync_replicas=3, total_replicas=3)
    assert master.epoch.number == MEMBERS_STEP
    master.following(node_id="one")
    master.following("10.0.0.3:5000", node_id="two")
    master.close()
    master = Master(tmp_path, seed=4, in_sync_replicas=2, total_replicas=2)
    assert (master.epoch.number, master.state.slaves) == (2 * MEMBERS_STEP, {}), "one of the two has no place any more"
    master.close()


def test_a_loss_that_was_accepted_begins_a_new_set(tmp_path: Path) -> None:
    """Nodes that are no longer asked must learn it, so that they are not promoted later."""
    state = state_of(tmp_path)
    state.open_epoch(0, rule="2/2")
    state.note_slaves({"one": 5})
    state.forget_slaves(set())
    assert state_of(tmp_path, seed=2).open_epoch(5, rule="2/2").number == MEMBERS_STEP
    assert state_of(tmp_path, seed=3).open_epoch(5, rule="2/2").number == MEMBERS_STEP + 1


def test_a_node_that_is_not_admitted_gets_the_log_and_nothing_else(tmp_path: Path) -> None:
    """It earns no SEND_OK, is not remembered, and its word fences nobody; once it is registered it counts."""
    master = Master(tmp_path)
    registered: set[tuple[str, int]] = set()
    asked: list[tuple[str, int]] = []

    def admit(node_id: str, broker_id: int) -> str:
        asked.append((node_id, broker_id))
        return "" if (node_id, broker_id) in registered else "no broker 7 of b is registered"

    master.ha.members.admit = admit
    stranger = master.following("203.0.113.9:5", node_id="ee", broker_id=7)
    assert stranger.welcome is not None
    assert not stranger.welcome.counted
    end = master.send(b"one")
    stranger.receive()
    stranger.ack()
    master.settle()
    assert master.told == [(end, PutStatus.SLAVE_NOT_AVAILABLE)]
    assert state_of(tmp_path).slaves == {}
    (event,) = master.events("slave_not_counted")
    assert "not admitted: no broker 7" in str(event["why"])
    liar = master.slave("203.0.113.9:6", node_id="ee", broker_id=7, promised=(1_000_000, "ee.1"))
    assert liar.refused is not None
    assert not master.ha.is_fenced
    assert state_of(tmp_path).promised_epoch == master.epoch.number
    foreign = master.slave("203.0.113.9:7", node_id="ff", cluster="other")
    assert foreign.refused is not None
    assert {node for node, _ in asked} == {"ee"}, "nothing is asked about nodes of other groups"

    registered.add(("real", 1))
    real = master.following("10.0.0.2:5", node_id="real")
    assert real.welcome is not None
    assert real.welcome.counted
    second = master.send(b"two")
    real.receive()
    real.ack()
    master.settle()
    assert master.told[-1] == (second, OK)
    assert state_of(tmp_path).slaves.keys() == {"real"}
    assert stranger.transport.sends.is_cut, "it made room: a pair has one slave"
    before = len(asked)
    leave(master, real)
    assert master.following("10.0.0.2:6", node_id="real").welcome is not None
    assert len(asked) == before, "a slave that was counted is known"
    master.close()


def test_an_admitted_slave_is_counted_at_its_next_connection(tmp_path: Path) -> None:
    """The name server was away when it came: it is sent to connect again, with the log that it has."""
    master = Master(tmp_path)
    answers = ["no name server has answered", ""]
    master.ha.members.admit = lambda node_id, broker_id: answers.pop(0)
    slave = master.following(node_id="new")
    assert not slave.transport.sends.is_cut
    master.clock.advance_ms(COUNT_AGAIN_NS // 1_000_000)
    slave.ack()
    master.settle()
    assert slave.transport.sends.is_cut
    again = master.following(node_id="new")
    assert again.welcome is not None
    assert again.welcome.counted
    assert not answers
    master.close()


def test_a_crowd_of_node_ids_is_not_remembered_for_ever(tmp_path: Path) -> None:
    """The admitted ids are bounded; after that many the question is repeated."""
    master = Master(tmp_path)
    asked: list[str] = []

    def admit(node_id: str, broker_id: int) -> str:
        asked.append(node_id)
        return ""

    members = master.ha.members
    members.admit = admit
    for number in range(ADMITTED_MAX + 1):
        assert members.is_admitted(str(number), 1)
    assert members.is_admitted(str(ADMITTED_MAX), 1)
    assert len(asked) == ADMITTED_MAX + 1
    assert members.is_admitted("0", 1)
    assert len(asked) == ADMITTED_MAX + 2
    master.close()
