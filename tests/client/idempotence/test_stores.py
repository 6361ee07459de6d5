"""Every store of marks keeps the same contract: in memory, SQLite, RocksDB, a real Redis, a real MariaDB."""

import asyncio
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from pocketmq.client.idempotence import Claim, MarkStore, MarkStoreFull, MarkStoreUnavailable, MemoryStore, open_store
from pocketmq.client.idempotence.redis_store import RedisStore
from pocketmq.client.idempotence.rocksdb_store import RocksStore
from pocketmq.client.idempotence.sql_store import ABANDONED_MS, SqlStore
from pocketmq.common.errors import ConfigError
from tests.client.idempotence.conftest import ALL, EMBEDDED
from tests.profiles import examples

LEASE, WINDOW = 60_000, 600_000
NEW, TAKEN_OVER, BUSY, DONE = Claim.NEW, Claim.TAKEN_OVER, Claim.BUSY, Claim.DONE


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def claim(store: MarkStore, *keys: str, owner: str = "a", now: int = 0, lease: int = LEASE) -> list[Claim]:
    return list(await store.claim(keys, owner, now or now_ms(), lease, WINDOW))


@pytest.mark.parametrize("store", ALL, indirect=True)
async def test_the_life_of_a_mark(store: MarkStore) -> None:
    """Claimed once; busy for others; done for all; free when released; only the owner may end or renew it."""
    assert await claim(store, "k1", "k2", "k3") == [NEW, NEW, NEW]
    assert await claim(store, "k1", "k4", owner="b") == [BUSY, NEW]
    assert list(await store.finish(["k1", "k4"], "b", now_ms(), WINDOW)) == [False, True]
    assert list(await store.finish(["k1"], "a", now_ms(), WINDOW)) == [True]
    await store.release(["k2", "k3"], "b")
    await store.release(["k3"], "a")
    assert await claim(store, "k1", "k2", "k3", "k4", owner="c") == [DONE, BUSY, NEW, DONE]
    await store.release(["k1"], "a")
    assert await claim(store, "k1", owner="d") == [DONE]
    assert list(await store.finish(["k1"], "a", now_ms(), WINDOW)) == [False]
    assert list(await store.finish(["nobody"], "a", now_ms(), WINDOW)) == [False]


@pytest.mark.parametrize("store", ALL, indirect=True)
async def test_a_claim_whose_owner_died_is_taken_over_by_one(store: MarkStore) -> None:
    """After the lease, and not before; the dead owner, if it wakes, can neither finish nor renew nor release it."""
    assert await claim(store, "k", lease=1) == [NEW]
    await asyncio.sleep(0.01)
    later = now_ms()
    assert await claim(store, "k", owner="b", now=later) == [TAKEN_OVER]
    assert await claim(store, "k", owner="c", now=later) == [BUSY]
    await store.renew(["k"], "a", later, LEASE * 10)
    await store.release(["k"], "a")
    assert list(await store.finish(["k"], "a", later, WINDOW)) == [False]
    assert list(await store.finish(["k"], "b", later, WINDOW)) == [True]


@pytest.mark.parametrize("store", ALL, indirect=True)
async def test_a_renewed_lease_lives_on(store: MarkStore) -> None:
    """Renewal counts from the time it is made."""
    begin = now_ms()
    assert await claim(store, "k", now=begin, lease=1) == [NEW]
    await store.renew(["k", "other"], "a", begin, LEASE)
    await asyncio.sleep(0.01)
    assert await claim(store, "k", owner="b", now=begin + 10) == [BUSY]
    assert await claim(store, "other", owner="b") == [NEW]


@pytest.mark.parametrize("store", ALL, indirect=True)
async def test_what_is_done_is_forgotten_after_its_window(store: MarkStore) -> None:
    """Its key then counts as new: the window bounds the store."""
    begin = now_ms()
    assert await claim(store, "k", now=begin) == [NEW]
    await store.finish(["k"], "a", begin, 1)
    await asyncio.sleep(0.01)
    assert await claim(store, "k", owner="b", now=begin + 10) == [NEW]


@pytest.mark.parametrize("kind", ["sqlite", "redis", pytest.param("mariadb", marks=pytest.mark.slow)])
async def test_of_many_instances_one_gets_a_key(kind: str, make_store: Callable[[str], MarkStore]) -> None:
    """Eight clients claim the same twenty keys at once, in different orders: each key has one owner."""
    stores = [make_store(kind) for _ in range(8)]
    for store in stores:
        await store.open()
    keys = [f"k{number}" for number in range(20)]

    async def one(number: int, store: MarkStore) -> dict[str, Claim]:
        mine = keys[number:] + keys[:number]
        return dict(zip(mine, await claim(store, *mine, owner=f"o{number}"), strict=True))

    results = await asyncio.gather(*(one(number, store) for number, store in enumerate(stores)))
    for key in keys:
        assert sorted(result[key] for result in results) == [NEW] + [BUSY] * 7
    for store in stores:
        await store.close()


@pytest.mark.parametrize("kind", ["sqlite", "rocksdb", "redis"])
async def test_marks_survive_a_restart(kind: str, make_store: Callable[[str], MarkStore]) -> None:
    """Done stays done, and the next process finds the claim of a process that ended."""
    store = make_store(kind)
    await store.open()
    assert await claim(store, "done", "died") == [NEW, NEW]
    await store.finish(["done"], "a", now_ms(), WINDOW)
    await store.close()
    store = make_store(kind)
    await store.open()
    assert await claim(store, "done", "died", owner="b") == [DONE, BUSY]
    await store.close()


@pytest.mark.parametrize("kind", EMBEDDED)
async def test_a_store_is_bounded(kind: str, tmp_path: Path) -> None:
    """Expired marks are removed; above the limit the oldest done ones go early; live claims are never lost."""
    store: Any = MemoryStore(max_keys=4)
    if kind != "memory":
        is_sql = kind == "sqlite"
        store = SqlStore(f"sqlite:///{tmp_path}/m.db", max_keys=4) if is_sql else RocksStore(tmp_path / "r", max_keys=4)
    await store.open()
    assert await claim(store, "live", "d1", "d2", "d3", now=1000) == [NEW] * 4
    for number in (1, 2, 3):
        await store.finish([f"d{number}"], "a", 1000 + number, 1000)
    assert await claim(store, "n1", "n2", owner="b", now=1500) == [NEW, NEW]
    await store.purge(1500)
    assert store.evicted == 2
    assert await claim(store, "d3", "live", owner="c", now=1500) == [DONE, BUSY]
    assert await store.purge(5000) >= 1
    assert await claim(store, "live", owner="c", now=1500) == [BUSY]
    await store.close()


@pytest.mark.parametrize("kind", ["memory", "rocksdb"])
async def test_a_store_full_of_running_handlers_says_so(kind: str, tmp_path: Path) -> None:
    """It then grants no claim and removes no mark, and still answers for known keys."""
    store: Any = MemoryStore(max_keys=2) if kind == "memory" else RocksStore(tmp_path / "r", max_keys=2)
    await store.open()
    assert await claim(store, "a", "b") == [NEW, NEW]
    with pytest.raises(MarkStoreFull, match="max_keys"):
        await claim(store, "c")
    assert await claim(store, "a", "b", owner="x") == [BUSY, BUSY]
    await store.finish(["a"], "a", now_ms(), WINDOW)
    assert await claim(store, "c") == [NEW]
    assert len(store) == 2
    await store.close()


async def test_abandoned_claims_leave_the_database_at_last(tmp_path: Path) -> None:
    """They stay for a month, because their effect is unknown."""
    store = SqlStore(f"sqlite:///{tmp_path}/m.db")
    await store.open()
    assert await claim(store, "k", now=1000, lease=1) == [NEW]
    assert await store.purge(1000 + ABANDONED_MS) == 0
    assert await store.purge(1001 + ABANDONED_MS) == 1
    await store.close()


async def test_keys_that_a_database_would_take_for_equal_differ(tmp_path: Path) -> None:
    """Case, accents, trailing spaces: MySQL's collations would merge them."""
    store = SqlStore(f"sqlite:///{tmp_path}/m.db")
    await store.open()
    keys = ["k", "K", "k ", "\u00e9", "e", "\U0001f600", "\ud800"]
    assert await claim(store, *keys) == [NEW] * len(keys)
    await store.close()


async def test_a_server_that_is_not_there_is_an_error_of_ours(unused_tcp_port: int) -> None:
    """The handler is not called then; the message is retried."""
    store = RedisStore(f"redis://127.0.0.1:{unused_tcp_port}/0")
    for work in (store.open(), store.claim(["k"], "a", 1, 1, 1), store.finish(["k"], "a", 1, 1)):
        with pytest.raises(MarkStoreUnavailable):
            await work
    await store.close()
    sql = SqlStore(f"mysql+pymysql://root@127.0.0.1:{unused_tcp_port}/x")
    with pytest.raises(MarkStoreUnavailable, match="OperationalError"):
        await sql.claim(["k"], "a", 1, 1, 1)
    await sql.close()


async def test_a_database_in_use_is_named(tmp_path: Path) -> None:
    """RocksDB belongs to one process at a time."""
    first, second = RocksStore(tmp_path / "r"), RocksStore(tmp_path / "r")
    await first.open()
    with pytest.raises(MarkStoreUnavailable, match="LOCK"):
        await second.open()
    await first.close()
    await second.open()
    await second.close()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("memory:", MemoryStore),
        ("redis://127.0.0.1:1/0", RedisStore),
        ("rocksdb:some/where", RocksStore),
        ("rocksdb:///some/where", RocksStore),
        ("sqlite:///some.db", SqlStore),
    ],
)
async def test_a_store_by_its_text(text: str, kind: type) -> None:
    """Each kind has one text; no store is opened yet."""
    store = open_store(text)
    assert type(store) is kind
    await store.close()


@pytest.mark.parametrize(
    "text", ["", "memory", "sqlite://", "sqlite:///:memory:", "nosuch://x", "mysql+nodriver://x/y", "redis://x:y/z"]
)
def test_a_store_that_cannot_be_meant_is_refused(text: str) -> None:
    """The error comes when the store is made, not with the first message."""
    with pytest.raises(ConfigError):
        open_store(text)


@pytest.mark.parametrize(
    ("text", "module", "extra"),
    [
        ("redis://127.0.0.1:1/0", "redis.asyncio", "redis"),
        ("rocksdb:x", "rocksdict", "rocksdb"),
        ("sqlite:///x.db", "sqlalchemy", "sql"),
    ],
)
def test_a_missing_library_is_named(text: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the command that installs it; no other part of the package needs it."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"pocketmq\[{extra}\]"):
        open_store(text)


class StoreMachine(RuleBasedStateMachine):
    """Random calls of three owners under a clock that only moves forward, against a model of ten lines. All lives share
    one store, opened once because an open is slow on a slow disk; each life has its own keys. Marks of earlier lives
    are purged on the way.
    """

    loop: asyncio.AbstractEventLoop
    store: MarkStore
    lives: Iterator[int]
    KEYS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True)
    OWNERS = st.sampled_from("xyz")

    def __init__(self) -> None:
        super().__init__()
        self.life = next(type(self).lives)
        self.now = 1000 + self.life * 10_000  # a life takes less
        self.number = 0
        self.model: dict[str, tuple[bool, str, int]] = {}
        self.owners: dict[str, str] = {}

    def own(self, keys: list[str]) -> list[str]:
        """Return this life's form of the keys."""
        return [f"{self.life}-{key}" for key in keys]

    @rule(ms=st.integers(1, 40))
    def time_goes_on(self, ms: int) -> None:
        """How long a claim whose owner died is remembered differs between stores: at least for the window of 100."""
        self.now += ms
        for key, (done, owner, until) in list(self.model.items()):
            if not done and until + 100 <= self.now:
                self.loop.run_until_complete(self.store.release(self.own([key]), owner))
                del self.model[key]

    @rule(keys=KEYS, name=OWNERS)
    def claims(self, keys: list[str], name: str) -> None:
        self.number += 1
        owner = self.owners[name] = f"{self.life}-{name}{self.number}"
        expected = []
        for key in keys:
            done, _, until = self.model.get(key, (True, "", 0))
            if until > self.now:
                expected.append(DONE if done else BUSY)
                continue
            expected.append(NEW if done else TAKEN_OVER)
            self.model[key] = (False, owner, self.now + 30)
        got = self.loop.run_until_complete(self.store.claim(self.own(keys), owner, self.now, 30, 100))
        assert list(got) == expected

    def held(self, keys: list[str], owner: str) -> list[bool]:
        return [self.model.get(key, (True, "", 0))[:2] == (False, owner) for key in keys]

    @rule(keys=KEYS, name=OWNERS)
    def finishes(self, keys: list[str], name: str) -> None:
        owner = self.owners.get(name, "nobody")
        expected = self.held(keys, owner)
        got = self.loop.run_until_complete(self.store.finish(self.own(keys), owner, self.now, 50))
        assert list(got) == expected
        for key, is_held in zip(keys, expected, strict=True):
            if is_held:
                self.model[key] = (True, owner, self.now + 50)

    @rule(keys=KEYS, name=OWNERS)
    def renews(self, keys: list[str], name: str) -> None:
        owner = self.owners.get(name, "nobody")
        for key, is_held in zip(keys, self.held(keys, owner), strict=True):
            if is_held:
                self.model[key] = (False, owner, self.now + 30)
        self.loop.run_until_complete(self.store.renew(self.own(keys), owner, self.now, 30))

    @rule(keys=KEYS, name=OWNERS)
    def gives_up(self, keys: list[str], name: str) -> None:
        owner = self.owners.get(name, "nobody")
        for key, is_held in zip(keys, self.held(keys, owner), strict=True):
            if is_held:
                del self.model[key]
        self.loop.run_until_complete(self.store.release(self.own(keys), owner))

    @rule()
    def purges(self) -> None:
        self.loop.run_until_complete(self.store.purge(self.now))

    @invariant()
    def is_small(self) -> None:
        assert threading.active_count() < 200


@pytest.mark.scaled
@pytest.mark.slow
@pytest.mark.parametrize("kind", EMBEDDED)
def test_random_calls_follow_the_model(kind: str, tmp_path: Path) -> None:
    """Whatever the order of claims, ends, renewals, purges and time, the store answers as the model does."""
    store: MarkStore = MemoryStore()
    if kind != "memory":
        store = SqlStore(f"sqlite:///{tmp_path}/marks") if kind == "sqlite" else RocksStore(tmp_path / "marks")
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.run_until_complete(store.open())
        machine = type("Machine", (StoreMachine,), {"loop": loop, "store": store, "lives": itertools.count()})
        try:
            run_state_machine_as_test(machine, settings=settings(examples(15), stateful_step_count=25, database=None))
        finally:
            loop.run_until_complete(store.close())
