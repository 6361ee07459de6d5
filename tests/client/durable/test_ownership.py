"""The wait for an owner that may be dead: when to check again, the reports, the end; and the result of each check."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.durable.entry import Entry
from pocketmq.client.durable.errors import RetryStoreLocked, RetryStoreUnreachable
from pocketmq.client.durable.opening import StoreOptions, open_url
from pocketmq.client.durable.ownership import (
    LEASE_MS_MAX,
    MARGIN_MS,
    Owner,
    Patience,
    StoreWait,
    Tokens,
    open_when_free,
)
from pocketmq.client.durable.store import Changes, RetryStore, Summary
from pocketmq.common.clock import ManualClock
from tests.client.durable.conftest import url_of
from tests.client.durable.fakes import FaultyStore

LEASE_MS = 9_000


def locked(left_ms: int, owner: str = "a") -> RetryStoreLocked:
    return RetryStoreLocked("locked", owner=owner, left_ms=left_ms)


def test_an_owner_is_read_as_it_was_written() -> None:
    """It has all fields of the owner; the bare token of an earlier version has no other facts."""
    owner = Owner.new(ManualClock(), LEASE_MS, Tokens().new())
    assert Owner.decode(owner.encode()) == owner
    assert Owner.new(ManualClock(), LEASE_MS, Tokens().new()).token != owner.token
    assert str(owner).startswith(f"process {owner.pid} on {owner.host}, since 2023-11-14T22:13:20Z")
    for value in (b"0123456789abcdef", b"\xff\x00", b"{}", b"[1]", b'{"token":"a","pid":"x"}'):
        assert str(Owner.decode(value)) == "another process"


def test_what_a_record_says_is_not_believed_blindly() -> None:
    """A lease beyond the limit, a time without a date and a name with control characters cause no harm."""
    for lease_ms in (0, -1, LEASE_MS_MAX + 1):
        assert Owner(token="t", lease_ms=lease_ms).lease_or(LEASE_MS) == LEASE_MS
    assert Owner(token="t", lease_ms=300).lease_or(LEASE_MS) == 300
    text = str(Owner(token="t", host="a\x1b[2J\n", pid=7, since_ms=1 << 62))
    assert text == "process 7 on a?[2J?, since an unknown time"


def test_a_wait_looks_often_at_first_and_tells_each_second() -> None:
    """Pauses grow, none goes beyond the end of the lease, and the wait is reported at once and about once a second."""
    clock, told = ManualClock(), list[StoreWait]()
    patience = Patience("s", clock, told.append)
    end_ms = clock.now_ms() + LEASE_MS
    pauses = []
    while left_ms := end_ms - clock.now_ms():
        pauses.append(patience.pause_ms(locked(left_ms)))
        assert 0 < pauses[-1] <= left_ms + 1
        clock.advance_ms(min(pauses[-1], left_ms))
    assert pauses[:5] == [50, 100, 200, 400, 500]
    assert max(pauses) == 500
    assert told[0] == StoreWait("s", "a", 0, LEASE_MS + MARGIN_MS)
    assert {wait.at_most_ms for wait in told} == {LEASE_MS + MARGIN_MS}
    gaps = [right.waited_ms - left.waited_ms for left, right in itertools.pairwise(told)]
    assert all(1_000 <= gap < 1_500 for gap in gaps)
    assert sum(gaps) > LEASE_MS - 1_500
    assert "9.0 s of at most 11.0 s" in str(StoreWait("s", "a", 9_000, 11_000))


def test_a_wait_ends_when_the_owner_lives_or_does_not_end() -> None:
    """The wait ends once an owner lives; a claim that neither ends nor lives is not awaited for ever."""
    clock = ManualClock()
    patience = Patience("s", clock, lambda wait: None)
    assert patience.pause_ms(locked(LEASE_MS)) > 0
    assert patience.pause_ms(locked(0)) == 0
    assert patience.pause_ms(locked(LEASE_MS)) > 0
    looks = 0
    while pause_ms := patience.pause_ms(locked(LEASE_MS)):
        clock.advance_ms(pause_ms)
        looks += 1
        assert looks < 100
    assert clock.now_ms() - ManualClock().now_ms() < LEASE_MS + MARGIN_MS + 2_000


def test_a_late_look_is_followed_by_another() -> None:
    """A check that took longer than the rest of the lease began before its end: it proves nothing."""
    clock = ManualClock()
    patience = Patience("s", clock, lambda wait: None)
    patience.pause_ms(locked(LEASE_MS))
    clock.advance_ms(10 * LEASE_MS)
    assert patience.pause_ms(locked(1)) > 0
    assert patience.pause_ms(locked(1)) == 0


def test_another_owner_is_reported_and_waited_for() -> None:
    """A process that took the store meanwhile may be killed, too."""
    clock, told = ManualClock(), list[StoreWait]()
    patience = Patience("s", clock, told.append)
    patience.pause_ms(locked(LEASE_MS))
    clock.advance_ms(LEASE_MS)
    assert patience.pause_ms(locked(LEASE_MS, "b")) > 0
    assert [(wait.owner, wait.waited_ms, wait.at_most_ms) for wait in told] == [
        ("a", 0, LEASE_MS + MARGIN_MS),
        ("b", LEASE_MS, 2 * LEASE_MS + MARGIN_MS),
    ]


def test_a_caller_that_may_block_gets_the_store_or_the_reason() -> None:
    """It checks the store until it is free; an owner that lives, or another fault, raises an error."""

    class Leaving(FaultyStore):
        looks = [locked(1), locked(1)]

        def open(self, *, read_only: bool = False) -> Summary:
            self.open_error = self.looks.pop() if self.looks else None
            return super().open()

    store, told = Leaving(), list[StoreWait]()
    assert open_when_free(store, ManualClock(), told.append).count == 0
    assert (store.opened, len(told)) == (3, 1)
    for error in (locked(0), RetryStoreUnreachable("away")):
        store.looks = [error, locked(1)]  # type: ignore[list-item]
        with pytest.raises(type(error)) as caught:
            open_when_free(store, ManualClock(), told.append)
        assert caught.value is error


# -- the results of checking a database ----------------------------------------------------------------------------


class Database:
    """Owners of one name in a database, on machines with unrelated clocks."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.owners: list[RetryStore] = []

    def owner(self, lease_ms: int = LEASE_MS) -> RetryStore:
        store = open_url(self.url, StoreOptions(lease_ms=lease_ms), ManualClock(1))
        store.open()
        self.owners.append(store)
        store.write(Changes(added=[Entry(1, 0, 0, "", "", b"x")]))
        return store

    def second(self, clock: ManualClock, lease_ms: int = LEASE_MS) -> RetryStore:
        return open_url(self.url, StoreOptions(lease_ms=lease_ms), clock)


@pytest.fixture(params=["sqlite", "mysql", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A database of each kind."""
    made = Database(url_of(request.param, request, tmp_path))
    yield made
    for owner in made.owners:  # such as those that a test leaves behind, like a dead process
        owner.close()


def left_ms(store: RetryStore) -> int:
    with pytest.raises(RetryStoreLocked) as caught:
        store.open()
    return caught.value.left_ms


def test_a_silent_owner_is_taken_over_after_its_own_lease(database: Database) -> None:
    """The owner's lease counts, longer or shorter than our own; it begins at the first check."""
    for own_ms in (300, LEASE_MS * 10):
        owner, clock = database.owner(), ManualClock()
        second = database.second(clock, own_ms)
        assert left_ms(second) == LEASE_MS
        clock.advance_ms(LEASE_MS - 1)
        assert left_ms(second) == 1
        clock.advance_ms(1)
        assert second.open().count == 1
        with pytest.raises(RetryStoreLocked, match="another process owns it now"):
            owner.write(Changes(removed=[Entry(1, 0, 0, "", "", b"x")]))
        owner.close()
        second.keep_alive()
        second.write(Changes(removed=second.due((0, 0), 1, 1, 1)))
        second.close()
        third = database.second(clock)
        assert third.open().count == 0, "given back, it is free at once"
        third.close()


def test_an_owner_that_shows_a_sign_of_life_is_not_waited_for(database: Database) -> None:
    """A beat that moved proves that it lives; silent for two thirds of its lease later, it may have died since."""
    owner, clock = database.owner(), ManualClock()
    second = database.second(clock)
    assert left_ms(second) == LEASE_MS
    clock.advance_ms(LEASE_MS - 1)
    owner.keep_alive()
    with pytest.raises(RetryStoreLocked, match="it lives") as caught:
        second.open()
    assert caught.value.left_ms == 0
    assert "process " in caught.value.owner
    clock.advance_ms(LEASE_MS * 2 / 3 - 1)
    assert left_ms(second) == 0
    clock.advance_ms(1)
    assert left_ms(second) == LEASE_MS / 3
    clock.advance_ms(LEASE_MS / 3 - 1)
    owner.keep_alive()
    assert left_ms(second) == 0
    owner.close()
    assert second.open().count == 1
    second.close()


def test_an_owner_of_an_earlier_version_is_waited_for(database: Database) -> None:
    """It records no facts: our own lease counts. The table about owners is created where it is missing."""
    import sqlalchemy

    owner, clock = database.owner(), ManualClock()
    with open_engine(owner) as engine, engine.begin() as connection:
        connection.execute(sqlalchemy.text("DROP TABLE pocketmq_retry_holder"))
    second = database.second(clock, 300)
    with pytest.raises(RetryStoreLocked, match=r"another process owns .* it may be dead") as caught:
        second.open()
    assert caught.value.left_ms == 300
    clock.advance_ms(300)
    assert second.open().count == 1
    second.close()


def test_of_two_that_look_at_once_one_takes_it(database: Database) -> None:
    """Both have seen the lease run out: the update names the beat they saw, so only one of them takes the row."""
    database.owner()
    clocks = [ManualClock(), ManualClock()]
    rivals = [database.second(clock) for clock in clocks]
    for rival, clock in zip(rivals, clocks, strict=True):
        assert left_ms(rival) == LEASE_MS
        clock.advance_ms(LEASE_MS)
    first, second = rivals
    end = second._await_end  # type: ignore[attr-defined]

    def overtaken(row: Any, before_ns: int) -> None:
        end(row, before_ns)
        first.open()  # between the check and the update of the other

    second._await_end = overtaken  # type: ignore[attr-defined]
    assert left_ms(second) == LEASE_MS
    first.keep_alive()
    second._await_end = end  # type: ignore[attr-defined]
    assert left_ms(second) == LEASE_MS, "a new owner, not seen before"
    first.keep_alive()
    assert left_ms(second) == 0
    first.close()


def test_a_redis_owner_that_renews_its_lease_lives(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Its lease ends later than at the last check; an owner of an earlier version is recognized as well."""
    url = url_of("redis", request, tmp_path)
    owner = open_url(url, StoreOptions(lease_ms=60_000), ManualClock())
    owner.open()
    clock = ManualClock()
    second = open_url(url, StoreOptions(lease_ms=60_000), clock)
    assert 0 < left_ms(second) <= 60_001
    assert left_ms(second) > 0, "nothing has been renewed"
    clock.advance_ms(30_000)  # by this clock half of it is over; by the server's clock almost none: it was renewed
    with pytest.raises(RetryStoreLocked, match="it lives") as caught:
        second.open()
    assert caught.value.left_ms == 0
    assert "process " in caught.value.owner
    client = second._redis.Redis.from_url(url.partition("?")[0])  # type: ignore[attr-defined]
    client.set(second._prefix + "owner", "0123456789abcdef", px=60_000)  # type: ignore[attr-defined]
    assert left_ms(second) > 0
    client.persist(second._prefix + "owner")  # type: ignore[attr-defined]
    with pytest.raises(RetryStoreLocked, match="without an end"):
        second.open()
    client.close()
    owner.close()


def test_what_another_process_does_at_the_same_moment_is_no_fault(database: Database) -> None:
    """It creates the tables just before we do, and takes the store just before we write our row."""
    import sqlalchemy

    first, second = database.second(ManualClock()), database.second(ManualClock())
    make_engine = second._make_engine  # type: ignore[attr-defined]
    seen: list[str] = []

    def engine_with_a_rival() -> Any:
        engine = make_engine()

        @sqlalchemy.event.listens_for(engine, "before_cursor_execute")
        def overtake(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
            word = " ".join(statement.split()[:3])
            if word == "CREATE TABLE pocketmq_retry" and not seen:
                seen.append(word)
                first.open()
                first.close()
            if word == "INSERT INTO pocketmq_retry_owner" and len(seen) == 1:
                seen.append(word)
                first.open()

        return engine

    second._make_engine = engine_with_a_rival  # type: ignore[attr-defined]
    with open_engine(first) as engine:
        second._metadata.drop_all(engine)  # type: ignore[attr-defined]
    with pytest.raises(RetryStoreLocked, match="at the same moment") as caught:
        second.open()
    assert caught.value.left_ms == LEASE_MS
    assert len(seen) == 2
    first.close()
    assert second.open().count == 0
    second.close()


@contextmanager
def open_engine(store: RetryStore) -> Iterator[Any]:
    """Return the test's own connection to a store's database."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(store._parsed)  # type: ignore[attr-defined]
    try:
        yield engine
    finally:
        engine.dispose()
