"""The table of queue locks: against a model, then each rule by name."""

from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pocketmq.broker.lock.lock_table import WAITERS_MAX, LockKey, LockTable, Result, Unlocked

LIVE_NS = 60
LOCKS_MAX = 5
GROUPS = st.sampled_from(["g", "h"])
CLIENTS = st.sampled_from(["a", "b", "c"])
QUEUES = st.lists(st.tuples(st.sampled_from(["T", "U"]), st.integers(0, 1)), max_size=4, unique=True)


def table(locks_max: int = 100) -> LockTable[str]:
    return LockTable(LIVE_NS, locks_max, count(1).__next__)


def lock_one(locks: LockTable[str], client: str, now_ns: int, *, connection: str = "", **options: Any) -> Any:
    [granted] = locks.try_lock("g", client, connection or f"from-{client}", [("T", 0)], now_ns, **options)
    return granted


class LocksAgainstAModel(RuleBasedStateMachine):
    """A model in plain dicts: key → (client, connection, watches, renewed, token, release at)."""

    def __init__(self) -> None:
        super().__init__()
        self.locks = table(LOCKS_MAX)
        self.model: dict[LockKey, list[Any]] = {}
        self.now_ns = 0
        self.tokens_seen: set[int] = set()

    @rule(group=GROUPS, client=CLIENTS, channel=st.integers(0, 1), queues=QUEUES, watches=st.booleans())
    def lock(self, group: str, client: str, channel: int, queues: Any, watches: bool) -> None:
        connection = f"{client}{channel}"
        results = self.locks.try_lock(group, client, connection, queues, self.now_ns, watches_connection=watches)
        for (topic, queue_id), granted in zip(queues, results, strict=True):
            key = LockKey(group, topic, queue_id)
            known = self.model.get(key)
            if known is None and len(self.model) >= LOCKS_MAX:
                for old in [key for key, lock in self.model.items() if self.now_ns - lock[3] > LIVE_NS]:
                    del self.model[old]
            if known is None and len(self.model) >= LOCKS_MAX:
                assert granted.result is Result.FULL
                continue
            assert granted.lock is not None
            if known is not None and known[0] != client and self.now_ns - known[3] <= LIVE_NS:
                assert granted.result is Result.REFUSED
                assert (granted.lock.client_id, granted.lock.token) == (known[0], known[4])
                continue
            if known is not None and self.now_ns - known[3] <= LIVE_NS:
                assert granted.result is Result.RENEWED
                assert granted.lock.token == known[4]
            else:
                assert granted.result is (Result.GOT if known is None else Result.TAKEN_OVER)
                assert granted.lock.token > max(self.tokens_seen, default=0)
                self.tokens_seen.add(granted.lock.token)
            self.model[key] = [client, connection, watches, self.now_ns, granted.lock.token, None]

    @rule(group=GROUPS, client=CLIENTS, queues=QUEUES)
    def unlock(self, group: str, client: str, queues: Any) -> None:
        has_group = any(key.group == group for key in self.model)
        for key, result, _ in self.locks.unlock(group, client, queues):
            known = self.model.get(key)
            if known is None:
                assert result is (Unlocked.NOT_LOCKED if has_group else Unlocked.NO_GROUP)
            elif known[0] != client:
                assert result is Unlocked.NOT_OWNER
            else:
                assert result is Unlocked.RELEASED
                del self.model[key]

    @rule(client=CLIENTS, channel=st.integers(0, 1), grace_ns=st.integers(0, 30), all_clients=st.booleans())
    def close(self, client: str, channel: int, grace_ns: int, all_clients: bool) -> None:
        connection = f"{client}{channel}"
        leaving = self.locks.connection_closed(connection, self.now_ns, grace_ns, all_clients=all_clients)
        expected = [lock for lock in self.model.values() if lock[1] == connection and (all_clients or lock[2])]
        for lock in expected:
            lock[5] = self.now_ns + grace_ns
        assert leaving == len(expected)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), right=st.booleans())
    def take_away(self, data: Any, right: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        taken = self.locks.take_away(key, self.model[key][4] + (0 if right else 1))
        assert (taken is not None) == right
        if right:
            del self.model[key]

    @rule(by_ns=st.integers(0, 80))
    def time_passes(self, by_ns: int) -> None:
        self.now_ns += by_ns
        gone = {each.lock.key for each in self.locks.due(self.now_ns) if each.why == "disconnected"}
        assert gone == {key for key, lock in self.model.items() if lock[5] is not None and lock[5] <= self.now_ns}
        for key in gone:
            del self.model[key]
        due_ns = self.locks.next_due_ns()
        assert due_ns is None or due_ns > self.now_ns

    @invariant()
    def the_table_is_the_model(self) -> None:
        shown = {lock.key: lock for lock in self.locks.locks()}
        assert shown.keys() == self.model.keys()
        assert len(self.locks) == len(self.model) <= LOCKS_MAX
        for key, (client, connection, _, renewed_ns, token, _) in self.model.items():
            found = self.locks.get(key)
            assert found is not None
            assert (found.client_id, found.connection, found.renewed_ns, found.token) == (
                client,
                connection,
                renewed_ns,
                token,
            )
        for group in ("g", "h"):
            live = any(key.group == group and self.now_ns - lock[3] <= LIVE_NS for key, lock in self.model.items())
            assert self.locks.holds_any(group, self.now_ns) == live
        indexed = {key for keys in self.locks._of_connection.values() for key in keys}
        assert indexed == self.model.keys()


TestLocksAgainstAModel = LocksAgainstAModel.TestCase
TestLocksAgainstAModel.settings = settings(stateful_step_count=30)


def test_a_lock_lives_exactly_as_long_as_it_may() -> None:
    """At its last ns it is refused, one later it is taken over, under a higher token (RocketMQ: now - last > max)."""
    locks = table()
    first = lock_one(locks, "a", 0)
    assert lock_one(locks, "b", LIVE_NS).result is Result.REFUSED
    second = lock_one(locks, "b", LIVE_NS + 1)
    assert (second.result, second.old_client_id) == (Result.TAKEN_OVER, "a")
    assert second.lock.token > first.lock.token
    assert lock_one(locks, "a", LIVE_NS + 2).result is Result.REFUSED


def test_a_renewal_keeps_the_token_and_an_expired_lock_gets_a_new_one() -> None:
    """Between expiry and the next lock another client might have held it: the old token must not return."""
    locks = table()
    first = lock_one(locks, "a", 0).lock
    assert lock_one(locks, "a", LIVE_NS).lock.token == first.token
    again = lock_one(locks, "a", 2 * LIVE_NS + 1)
    assert (again.result, again.old_client_id) == (Result.TAKEN_OVER, "a")
    assert again.lock.token > first.token


def test_a_lock_renewed_on_a_new_connection_survives_the_end_of_the_old_one() -> None:
    """Whether the end of the old one is reported before or after."""
    locks = table()
    lock_one(locks, "a", 0, connection="old", watches_connection=True)
    lock_one(locks, "a", 1, connection="new", watches_connection=True)
    assert locks.connection_closed("old", 2, 0, all_clients=True) == 0
    assert locks.connection_closed("new", 3, 10, all_clients=False) == 1
    lock_one(locks, "a", 4, connection="newest", watches_connection=True)
    assert locks.due(100) == []
    assert locks.get(LockKey("g", "T", 0)) is not None


def test_those_who_wait_are_named_when_a_lock_is_over_and_only_once() -> None:
    """By unlock, by the end of a connection, by expiry; the clients then wait for the next holder."""
    locks = table()
    lock_one(locks, "a", 0, watches_connection=True)
    for now_ns in (1, 2):
        lock_one(locks, "b", now_ns)
    waiter = locks.locks()[0].waiters["b"]
    assert (waiter.connection, waiter.first_ns, waiter.last_ns, waiter.refusals) == ("from-b", 1, 2, 2)
    assert locks.next_due_ns() == LIVE_NS + 1
    [expired] = locks.due(LIVE_NS + 1)
    assert (expired.why, list(expired.lock.waiters)) == ("expired", ["b"])
    assert locks.due(LIVE_NS + 2) == []
    lock_one(locks, "c", LIVE_NS + 3, watches_connection=True)
    assert list(locks.locks()[0].waiters) == ["b"]
    locks.connection_closed("from-c", LIVE_NS + 4, 5, all_clients=False)
    assert locks.due(LIVE_NS + 8) == []
    [gone] = locks.due(LIVE_NS + 9)
    assert (gone.why, list(gone.lock.waiters)) == ("disconnected", ["b"])
    lock_one(locks, "b", LIVE_NS + 10)
    lock_one(locks, "d", LIVE_NS + 11)
    [(_, result, lock)] = locks.unlock("g", "b", [("T", 0)])
    assert result is Unlocked.RELEASED
    assert lock is not None
    assert list(lock.waiters) == ["d"]


def test_waiters_are_bounded() -> None:
    """Client ids come from peers: a lock remembers a limited number."""
    locks = table()
    lock_one(locks, "a", 0)
    for number in range(WAITERS_MAX + 5):
        lock_one(locks, f"w{number}", 1)
    assert len(locks.locks()[0].waiters) == WAITERS_MAX


def test_a_full_table_forgets_what_has_expired_first() -> None:
    """A full table refuses, but not while it has expired locks."""
    locks = table(2)
    assert [each.result for each in locks.try_lock("g", "a", "x", [("T", 0), ("T", 1), ("T", 2)], 0)] == [
        Result.GOT,
        Result.GOT,
        Result.FULL,
    ]
    locks.try_lock("g", "a", "x", [("T", 0)], 30)
    [granted] = locks.try_lock("g", "b", "y", [("T", 2)], LIVE_NS + 1)
    assert granted.result is Result.GOT
    assert [lock.key.queue_id for lock in locks.locks()] == [0, 2]


@pytest.mark.parametrize("topic", ["", "T", "U"])
def test_locks_are_shown_by_group_and_topic(topic: str) -> None:
    """In the order of group, topic, queue; other groups and topics are left out."""
    locks = table()
    locks.try_lock("h", "a", "x", [("T", 0)], 0)
    locks.try_lock("g", "a", "x", [("U", 1), ("T", 2), ("T", 1)], 0)
    keys = [lock.key for lock in locks.locks("g", topic)]
    expected = [LockKey("g", "T", 1), LockKey("g", "T", 2), LockKey("g", "U", 1)]
    assert keys == [key for key in expected if topic in ("", key.topic)]
    assert [lock.key.group for lock in locks.locks()] == ["g", "g", "g", "h"]
