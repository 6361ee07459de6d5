"""Which slaves may follow, and from which offset."""

import msgspec
import pytest

from pocketmq.store.ha.epochs import Epoch, EpochTable
from pocketmq.store.ha.handshake import HigherEpoch, MasterView, answer_hello
from pocketmq.store.ha.wire import FROM_MASTER, FrameDecoder, Hello, RefusalCode, Refused, Welcome, encode_welcome
from tests.store.ha.transports import make_hello

TABLE = EpochTable([Epoch(1, "m.a", 0), Epoch(2, "m.b", 1000), Epoch(5, "m.c", 3000)])
SLAVE = {"epochs": [(1, "m.a", 0), (2, "m.b", 1000), (5, "m.c", 3000)]}


def view(**changes: object) -> MasterView:
    fields: dict[str, object] = {
        "cluster": "C",
        "broker_name": "b",
        "node_id": "m",
        "role": "SYNC_MASTER",
        "segment_bytes": 8192,
        "epochs": TABLE,
        "min_offset": 0,
        "end_offset": 5000,
        "confirm_offset": 4000,
        "in_sync_replicas": 2,
        "total_replicas": 2,
        "slaves_max": 1,
    }
    return MasterView(**(fields | changes))  # type: ignore[arg-type]


def welcome_of(hello: Hello, master: MasterView) -> Welcome:
    answer, higher = answer_hello(hello, master)
    assert isinstance(answer, Welcome), answer
    assert higher is None
    assert FrameDecoder(FROM_MASTER).feed(encode_welcome(answer)) == [answer], "the slave accepts it"
    return answer


def refusal_of(hello: Hello, master: MasterView) -> tuple[str, HigherEpoch | None]:
    answer, higher = answer_hello(hello, master)
    assert isinstance(answer, Refused), answer
    return answer.code, higher


def test_an_empty_slave_starts_at_the_oldest_byte() -> None:
    """It does not start only at the last file."""
    answer = welcome_of(make_hello(), view())
    assert (answer.start_offset, answer.cut_to, answer.restart) == (0, None, False)
    answer = welcome_of(make_hello(), view(min_offset=2048))
    assert (answer.start_offset, answer.cut_to, answer.restart) == (2048, None, True)


@pytest.mark.parametrize("end", [3000, 4000, 5000])
def test_a_slave_with_the_same_history_continues_where_it_ends(end: int) -> None:
    """So does one that has everything."""
    answer = welcome_of(make_hello(end_offset=end, **SLAVE), view())
    assert (answer.start_offset, answer.common_offset, answer.cut_to, answer.restart) == (end, end, None, False)


def test_a_slave_that_went_on_with_an_old_epoch_is_cut_to_the_common_part() -> None:
    """It has bytes of epoch 2 beyond the master's end of that epoch."""
    answer = welcome_of(make_hello(end_offset=3500, epochs=SLAVE["epochs"][:2]), view())
    assert (answer.start_offset, answer.common_offset, answer.cut_to) == (3000, 3000, 3000)
    assert answer.confirm_offset == 4000


def test_an_old_master_whose_last_epoch_nobody_shares_is_cut_to_where_it_began() -> None:
    """Epoch 3 was its own, not that of the promoted master."""
    rows = [(1, "m.a", 0), (2, "m.b", 1000), (3, "old.x", 2000)]
    answer = welcome_of(make_hello(end_offset=4500, epochs=rows), view())
    assert (answer.common_offset, answer.cut_to) == (2000, 2000)


def test_a_slave_below_the_masters_oldest_byte_starts_anew() -> None:
    """Retention was faster; bytes that the master still has are not cut."""
    answer = welcome_of(make_hello(end_offset=3500, **SLAVE), view(min_offset=4096))
    assert (answer.start_offset, answer.common_offset, answer.cut_to, answer.restart) == (4096, 3500, None, True)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster": "other"}, RefusalCode.OTHER_CLUSTER),
        ({"broker_name": "other"}, RefusalCode.OTHER_BROKER_NAME),
        ({"segment_bytes": 4096}, RefusalCode.OTHER_SEGMENT_SIZE),
        ({"crc": "xxh3"}, RefusalCode.OTHER_CHECKSUM),
        ({"node_id": "m"}, RefusalCode.SAME_NODE),
        ({"node_id": ""}, RefusalCode.SAME_NODE),
        ({"ack_policy": "NEVER"}, RefusalCode.BAD_HELLO),
        ({"epochs": [(0, "m.a", 0)]}, RefusalCode.BAD_HELLO),
        ({"end_offset": 10}, RefusalCode.DIFFERENT_LOG),
        ({"end_offset": 10, "epochs": [(1, "stranger", 0)]}, RefusalCode.DIFFERENT_LOG),
        ({"end_offset": 5001, **SLAVE}, RefusalCode.LARGER_OFFSET),
        ({"end_offset": 4000, **SLAVE, "promised": (5, "m.other")}, RefusalCode.PROMISED_TO_OTHER),
    ],
)
def test_what_does_not_fit_is_refused_and_fences_nobody(changes: dict[str, object], code: str) -> None:
    """Each has its own code; a stranger cannot end a master's role."""
    promised = (
        {"promised": (9, "x.y")} if code not in (RefusalCode.LARGER_OFFSET, RefusalCode.PROMISED_TO_OTHER) else {}
    )
    assert refusal_of(make_hello(**(promised | changes)), view()) == (code, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"promised": (9, "s.new")},
        {"end_offset": 4000, **SLAVE, "promised": (9, "s.new")},
        {"end_offset": 4000, "epochs": [(1, "m.a", 0), (2, "m.b", 1000), (9, "s.new", 3500)]},
    ],
)
def test_a_slave_that_knows_a_higher_epoch_ends_the_masters_reign(changes: dict[str, object]) -> None:
    """A promise or the table shows it."""
    assert refusal_of(make_hello(**changes), view()) == (RefusalCode.HIGHER_EPOCH, HigherEpoch(9, "s.new"))


def test_a_synchronous_group_has_no_more_slaves_than_a_promotion_counts_on() -> None:
    """A slave that returns does not count as another one."""
    full = view(other_slaves=frozenset({"slave2"}))
    assert refusal_of(make_hello(), full) == (RefusalCode.TOO_MANY_SLAVES, None)
    assert welcome_of(make_hello(), view(other_slaves=frozenset(), slaves_max=1))
    answer, _ = answer_hello(make_hello(), full)
    assert isinstance(answer, Refused)
    assert "total_replicas" in answer.text
    assert msgspec.msgpack.encode(answer)
