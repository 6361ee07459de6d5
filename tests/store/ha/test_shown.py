"""What consumers of a synchronous master see."""

from collections.abc import Callable
from pathlib import Path

from pocketmq.common.epochs import PROMOTION_STEP
from pocketmq.store.ha.epochs import Epoch, EpochTable
from tests.store.ha.master import Master
from tests.store.ha.test_state import state_of


class NameServers:
    """Answers the question whether the master leads."""

    def __init__(self, why: str = "") -> None:
        self.why = why
        self.asked: list[tuple[int, str]] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def __call__(self, epoch: int, owner: str) -> str:
        self.asked.append((epoch, owner))
        self.meanwhile()
        return self.why


def master_at(root: Path, why: str = "") -> tuple[Master, NameServers]:
    master, servers = Master(root), NameServers(why)
    master.ha.shown.claim = servers
    return master, servers


def test_a_message_is_shown_when_a_slave_has_confirmed_it(tmp_path: Path) -> None:
    master, servers = master_at(tmp_path)
    slave = master.following()
    end = master.send(b"one")
    master.settle()
    assert master.store.dispatched_offset == 0
    slave.receive()
    slave.ack()
    master.settle()
    assert master.store.dispatched_offset == end
    assert servers.asked == [], "a slave that follows is word enough"
    master.close()


def test_alone_it_shows_what_it_had_before_name_servers_said_that_it_leads(tmp_path: Path) -> None:
    master, servers = master_at(tmp_path, "another node leads")
    end = master.send(b"one")
    master.settle()
    assert master.store.dispatched_offset == 0
    (event,) = master.events("unconfirmed_not_shown")
    assert (event["from_offset"], event["end_offset"], event["why"]) == (0, end, "another node leads")
    assert set(servers.asked) == {(master.epoch.number, master.epoch.owner)}
    later: list[int] = []
    servers.why, servers.meanwhile = "", lambda: later.append(master.send(b"meanwhile"))
    master.ha.shown.step()
    assert master.store.dispatched_offset == end, "what was stored after the question may be another master's place"
    servers.meanwhile = lambda: None
    master.settle()
    assert master.store.dispatched_offset == later[0]
    master.close()


def test_a_slave_that_stalls_holds_consumers_up_for_the_timeout_of_a_send(tmp_path: Path) -> None:
    master, servers = master_at(tmp_path)
    master.following()
    end = master.send(b"one")
    master.settle()
    master.clock.advance_ms(master.store.config.slave_timeout - 1)
    master.settle()
    assert (master.store.dispatched_offset, servers.asked) == (0, [])
    master.clock.advance_ms(1)
    master.settle()
    assert master.store.dispatched_offset == end
    assert len(servers.asked) == 1
    master.close()


def test_without_name_servers_a_master_alone_shows_everything_at_once(tmp_path: Path) -> None:
    master = Master(tmp_path)
    end = master.send(b"one")
    master.settle()
    assert (master.store.dispatched_offset, master.store.reads_wait) == (end, False)
    master.close()


def test_after_a_start_reads_wait_for_the_confirmation_of_the_end(tmp_path: Path) -> None:
    """The queues have entries of the earlier run that no slave may have."""
    master, _ = master_at(tmp_path)
    master.following()
    end = master.send(b"one")
    master.ha.stop()
    master.store.close()
    master, servers = Master(tmp_path, seed=2), NameServers("not registered yet")
    assert not master.store.reads_wait, "without name servers"
    master.ha.stop()
    master.store.close()
    master = Master(tmp_path, seed=3, claim=servers)
    assert master.store.reads_wait
    assert master.store.dispatched_offset == end
    slave = master.following()
    slave.receive()
    slave.ack()
    master.settle()
    assert not master.store.reads_wait, "the slave has the end"
    master.close()


def test_a_promoted_slave_shows_its_whole_log(tmp_path: Path) -> None:
    master = Master(tmp_path)
    end = master.send(b"one")
    master.close()
    state = state_of(tmp_path)
    state.set_epochs(EpochTable([Epoch(PROMOTION_STEP, "another.run", 0)]))
    master = Master(tmp_path, seed=2, claim=NameServers("not registered yet"))
    assert (master.store.dispatched_offset, master.store.reads_wait) == (end, False)
    master.close()


def test_a_replaced_master_that_has_shown_more_serves_no_reads(tmp_path: Path) -> None:
    master, _ = master_at(tmp_path)
    slave = master.following()
    master.send(b"confirmed")
    slave.receive()
    slave.ack()
    master.settle()
    slave.transport.close()
    master.settle()
    end = master.send(b"alone")
    master.settle()
    assert master.store.dispatched_offset == end
    assert master.ha.fence(PROMOTION_STEP, "another.run", "")
    assert master.store.reads_wait
    master.settle()
    assert master.store.reads_wait
    master.close()


def test_a_replaced_master_whose_messages_are_all_confirmed_goes_on_serving(tmp_path: Path) -> None:
    master, _ = master_at(tmp_path)
    slave = master.following()
    end = master.send(b"confirmed")
    slave.receive()
    slave.ack()
    master.settle()
    master.send(b"late")
    assert master.ha.fence(PROMOTION_STEP, "another.run", "")
    master.settle()
    assert (master.store.dispatched_offset, master.store.reads_wait) == (end, False)
    master.close()
