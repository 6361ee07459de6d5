"""A node keeps its promises through kills, power cuts and bad disks."""

import errno
import random
from pathlib import Path

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.epochs import PROMOTION_STEP, next_promotion
from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.errors import CorruptStore, DiskError, StoreError
from pocketmq.store.ha.epochs import Epoch, EpochTable
from pocketmq.store.ha.state import SLAVES_MAX, FencedBy, HaFenced, HaState
from tests.sim.crash_file_system import CrashFileSystem, Fault, Operation
from tests.store.log_fakes import HookedFileSystem


class Ids:
    """Random bytes that a test can predict."""

    def __init__(self, seed: int = 1) -> None:
        self.random = random.Random(seed)

    def __call__(self, count: int) -> bytes:
        return self.random.randbytes(count)


def state_of(
    root: Path, files: HookedFileSystem | None = None, clock: ManualClock | None = None, seed: int = 1
) -> HaState:
    state = HaState(files or HookedFileSystem(), StorePaths(str(root)), clock or ManualClock(), Ids(seed))
    state.load()
    return state


def test_a_new_node_gets_an_id_and_keeps_it(tmp_path: Path) -> None:
    """The id is made once; the node recognizes its own epochs."""
    state = state_of(tmp_path)
    assert len(state.node_id) == 16
    assert state_of(tmp_path, seed=2).node_id == state.node_id
    assert state.is_own(state.new_owner())
    assert not state.is_own("other.1234")
    assert (state.role, state.broker_id, state.clean, state.slaves) == ("", -1, True, {})


def test_promises_only_grow(tmp_path: Path) -> None:
    """A higher epoch, or the same one for the same owner, and no other, also after a restart."""
    state = state_of(tmp_path)
    assert state.promise(5, "a.1")
    assert state.promise(5, "a.1")
    assert not state.promise(5, "b.1")
    assert not state.promise(4, "a.1")
    again = state_of(tmp_path)
    assert (again.promised_epoch, again.promised_owner) == (5, "a.1")
    assert not again.promise(5, "b.1")
    assert again.promise(6, "b.1")
    assert not again.may_follow(5, "a.1")


@pytest.mark.parametrize(("epoch", "owner"), [(0, "a"), (-1, "a"), (1 << 53, "a"), (1, ""), (1, "x" * 65)])
def test_what_no_epoch_can_be_is_not_promised(tmp_path: Path, epoch: int, owner: str) -> None:
    """A stranger's numbers and names are checked before they are stored."""
    state = state_of(tmp_path)
    assert not state.promise(epoch, owner)
    assert not state.fence(epoch, owner)
    assert not state.follow(epoch, owner, acks_confirm=False)
    assert state.promised_epoch == 0


def test_every_start_as_a_master_opens_the_next_epoch(tmp_path: Path) -> None:
    """Each run has its own number and owner, promised to itself."""
    state = state_of(tmp_path)
    first = state.open_epoch(0)
    assert first.number == 1
    assert not state.clean
    again = state_of(tmp_path, seed=2)
    second = again.open_epoch(700)
    assert (second.number, second.start_offset) == (2, 700)
    assert second.owner != first.owner
    assert again.epochs == EpochTable([first, second])
    assert (again.promised_epoch, again.promised_owner) == (2, second.owner)
    again.mark_clean()
    assert state_of(tmp_path).clean


def test_epochs_that_a_power_loss_took_are_forgotten_but_not_their_numbers(tmp_path: Path) -> None:
    """A number is never opened twice: the lost epoch may live on in a slave."""
    state = state_of(tmp_path)
    state.open_epoch(0)
    state.open_epoch(900)
    epoch = state.open_epoch(500)
    assert epoch.number == 3
    assert [entry.number for entry in state.epochs.entries] == [1, 3]


def test_starting_often_does_not_pass_a_promotion(tmp_path: Path) -> None:
    """Each start adds one; a promotion jumps to a number that no count of starts reaches."""
    state = state_of(tmp_path)
    for _ in range(50):
        number = state.open_epoch(10).number
    assert number == 50
    assert next_promotion(1) == next_promotion(number) == PROMOTION_STEP > number


def test_a_promoted_epoch_is_opened_once(tmp_path: Path) -> None:
    """Even if a power loss, or a cut, removed its place from the log: the next start opens another one."""
    state = state_of(tmp_path)
    state.promise(PROMOTION_STEP, state.new_owner())
    state.open_epoch(700)
    state.set_epochs(state.epochs.cut(100))
    assert len(state.epochs) == 0
    assert state_of(tmp_path, seed=4).open_epoch(100).number == PROMOTION_STEP + 1


def test_a_node_that_promised_another_does_not_lead(tmp_path: Path) -> None:
    """A fenced master stays fenced through restarts, however often it is started."""
    state = state_of(tmp_path)
    state.open_epoch(0)
    assert state.fence(PROMOTION_STEP, "b.1", "10.0.0.2:10911")
    assert not state.fence(PROMOTION_STEP - 1, "c.1")
    for _ in range(3):
        again = state_of(tmp_path)
        assert again.fenced_by == FencedBy(PROMOTION_STEP, "b.1", "10.0.0.2:10911")
        with pytest.raises(HaFenced, match=r"promised epoch 1000000 to b\.1"):
            again.open_epoch(100)
    again.set_role("SLAVE", 1)
    assert again.fenced_by is None
    with pytest.raises(HaFenced):
        again.open_epoch(100)


def test_a_promotion_opens_the_promised_epoch(tmp_path: Path) -> None:
    """A candidate promises itself an epoch, and its start as a master opens exactly that; the next start adds one."""
    state = state_of(tmp_path)
    assert state.follow(3, "a.1", acks_confirm=True)
    state.set_epochs(EpochTable([Epoch(3, "a.1", 0)]))
    owner = state.new_owner()
    assert state.promise(next_promotion(3), owner)
    state.set_role("SYNC_MASTER", 0)
    again = state_of(tmp_path, seed=3)
    assert again.role == "SYNC_MASTER"
    assert again.open_epoch(800) == Epoch(PROMOTION_STEP, owner, 800)
    assert again.open_epoch(900).number == PROMOTION_STEP + 1


def test_what_a_promoted_slave_acknowledged_stays_confirmed(tmp_path: Path) -> None:
    """Everything in its log may have been confirmed; later the master's log is not cut below that."""
    state = state_of(tmp_path)
    state.follow(3, "a.1", acks_confirm=True)
    state.promise(10, state.new_owner())
    state.open_epoch(800)
    assert (state.confirmed_offset, state.acks_confirm) == (800, False)


def test_confirmed_only_grows(tmp_path: Path) -> None:
    """A lower offset has no effect."""
    state = state_of(tmp_path)
    state.note_confirmed(500)
    state.note_confirmed(400)
    assert state_of(tmp_path).confirmed_offset == 500


def test_followers_are_kept_at_once_and_their_offsets_now_and_then(tmp_path: Path) -> None:
    """A new follower is durable before it counts; offsets cost a sync only every few seconds."""
    files, clock = HookedFileSystem(), ManualClock()
    state = state_of(tmp_path, files, clock)
    state.note_slaves({"s1": 10})
    assert state_of(tmp_path).slaves == {"s1": 10}
    files.operations.clear()
    for at in range(100):
        state.note_slaves({"s1": 10 + at})
        clock.advance_ms(10)
    assert not files.operations
    clock.advance_ms(5000)
    state.note_slaves({"s1": 900})
    assert state_of(tmp_path).slaves == {"s1": 900}
    state.note_slaves({"s2": 5})
    assert state_of(tmp_path).slaves == {"s1": 900, "s2": 5}
    state.forget_slaves({"s2"})
    assert state_of(tmp_path).slaves == {"s2": 5}


def test_the_list_of_followers_is_bounded(tmp_path: Path) -> None:
    """Strangers that connect once do not fill the file; those connected now stay."""
    state = state_of(tmp_path)
    state.note_slaves({f"s{number:03d}": number for number in range(SLAVES_MAX - 1)})
    for number in range(SLAVES_MAX - 1, SLAVES_MAX + 20):
        state.note_slaves({f"s{number:03d}": number})
    assert len(state.slaves) == SLAVES_MAX
    assert f"s{SLAVES_MAX + 19:03d}" in state.slaves


@pytest.mark.parametrize("damage", ["garbage", "flipped", "empty", "version"])
def test_an_unreadable_file_refuses_the_start(tmp_path: Path, damage: str) -> None:
    """A guess could break a promise: the error has the cure."""
    state = state_of(tmp_path)
    state.promise(5, "a.1")
    path = Path(state.path)
    data = path.read_bytes()
    changed = {
        "garbage": b"\x00\x01",
        "flipped": data.replace(b'"promised_epoch":5', b'"promised_epoch":4'),
        "empty": b"",
        "version": data[:-5],
    }[damage]
    assert changed != data
    path.write_bytes(changed)
    with pytest.raises(CorruptStore, match=r"ha\.json") as caught:
        state_of(tmp_path)
    assert ".bak" in caught.value.hint
    assert path.read_bytes() == changed
    assert Path(f"{path}.bak").exists()


def test_a_promise_that_could_not_be_written_was_not_made(tmp_path: Path) -> None:
    """If the disk refuses, ``promise`` raises, and the node acts as before."""
    files = HookedFileSystem()
    state = state_of(tmp_path, files)
    state.promise(5, "a.1")

    def refuse(operation: str, path: str) -> None:
        if operation == "sync":
            raise DiskError("refused", why="test")

    files.hook = refuse
    with pytest.raises(DiskError):
        state.promise(6, "b.1")
    with pytest.raises(DiskError):
        state.set_epochs(EpochTable([Epoch(5, "a.1", 0)]))
    with pytest.raises(DiskError):
        state.check_writable()
    assert (state.promised_epoch, len(state.epochs)) == (5, 0)
    files.hook = None
    assert state.promise(6, "b.1")
    state.check_writable()
    assert state_of(tmp_path).promised_epoch == 6


def test_no_power_cut_takes_a_promise_back() -> None:
    """Every disk that a power cut can leave has the last answered promise, or a newer one."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    files = CrashFileSystem()
    paths = StorePaths("/store")
    state = HaState(files, paths, ManualClock(), Ids())
    state.load()
    answered = 0
    for number in range(1, 6):
        assert state.promise(number, f"a.{number}")
        answered = number
        for disk in files.crash_states(random.Random(seed + number), limit=30):
            again = HaState(disk, paths, ManualClock(), Ids(2))
            again.load()
            assert again.promised_epoch >= answered
            assert again.node_id == state.node_id

    def fail(operation: Operation) -> Fault | None:
        return Fault(errno.EIO) if operation.kind == "rename" else None

    files.before = fail
    with pytest.raises(StoreError):
        state.promise(50, "z.1")
    assert state.promised_epoch == answered


def test_orders_survive_until_they_are_done(tmp_path: Path) -> None:
    """An order for the next opening of the store survives restarts, and is removed when it is carried out."""
    state = state_of(tmp_path)
    state.set_epochs(EpochTable([Epoch(1, "a", 0), Epoch(2, "b", 500)]))
    state.note_confirmed(450)
    state.order_cut(400)
    state.order_accept_loss()
    again = state_of(tmp_path)
    assert (again.cut_to, again.drop, again.accept_loss) == (400, False, True)
    again.cut_done(400)
    assert (again.cut_to, again.accept_loss, again.confirmed_offset) == (None, False, 400)
    assert again.epochs == EpochTable([Epoch(1, "a", 0)])
    again.order_drop()
    assert state_of(tmp_path).drop
    again.cut_done(0)
    assert (again.drop, len(again.epochs), again.confirmed_offset) == (False, 0, 0)
