"""Every store keeps the same contract: the memory store is the model of the others."""

import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.durable.entry import Entry
from pocketmq.client.durable.errors import RetryStoreError, RetryStoreLocked, RetryStoreRefused, RetryStoreUnreachable
from pocketmq.client.durable.memory_store import MemoryStore
from pocketmq.client.durable.opening import StoreOptions, open_url, split_name
from pocketmq.client.durable.store import DUE_MS_MAX, Changes, RetryStore
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import ConfigError
from tests.servers import free_port, postgres_at, redis_at

NewStore = Callable[..., RetryStore]
LANE = "T\x1fbroker-a\x1f3"


def entry(seq: int, due_ms: int = 0, *, lane: str = "", key: str = "", payload: bytes = b"payload") -> Entry:
    return Entry(seq, due_ms, 0, lane, key, payload)


def everything(store: RetryStore) -> Any:
    due = store.due((0, 0), DUE_MS_MAX, 10_000, 1 << 30)
    lanes = [store.lane(lane, 0, 10_000, 1 << 30) for lane in (LANE, LANE + "0", "U\x1f\x1f-1")]
    return due, lanes, store.given_up(0, 10_000), store.oldest_seq(0), store.first_due_ms((0, 0))


@pytest.mark.slow
def test_any_changes_leave_what_the_model_has(new_store: NewStore) -> None:
    """Random transactions, with a reopening now and then, give the same contents and the same summary."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    store, model = new_store(), MemoryStore()
    store.open()
    seq = 1 << 40
    for step in range(40):
        known: list[Entry] = list(model._entries.values())
        rng.shuffle(known)
        changes = Changes()
        for _ in range(rng.randrange(20)):
            seq += rng.randrange(1, 1 << 21)
            lane = rng.choice(["", "", LANE, LANE + "0", "U\x1f\x1f-1"])
            key = rng.choice(["AA", "UA", "ключ", "\x1eb\x1e2"]) if lane else ""
            due_ms = 0 if lane else rng.randrange(1 << 41)
            changes.added.append(entry(seq, due_ms, lane=lane, key=key, payload=rng.randbytes(rng.randrange(300))))
        for kind in range(3):
            for each in known[kind::4][: rng.randrange(6)]:
                if kind == 0:
                    changes.removed.append(each)
                elif kind == 1:
                    changes.moved.append((each, 0 if each.lane else rng.randrange(1 << 41), each.attempts + 1))
                else:
                    changes.given_up.append((each, f"why {each.seq} ü"))
        if store is not model:
            store.write(changes)
        model.write(changes)
        if step % 10 == 9:
            gone = [each for each, _ in model.given_up(0, 3)]
            store.purge_given_up(gone)
            model.purge_given_up(gone)
            store.close()
            store = new_store()
            found, wanted = store.open(), model.open()
            assert (found.count, found.lanes, found.oldest_seq, found.given_up_count) == (
                wanted.count,
                wanted.lanes,
                wanted.oldest_seq,
                wanted.given_up_count,
            )
            assert found.size_bytes == wanted.size_bytes
            assert found.last_seq == wanted.last_seq
        assert everything(store) == everything(model)
    store.close()


def test_reads_begin_where_they_are_told_and_stay_within_their_bounds(new_store: NewStore) -> None:
    """Reads go by due time and number, up to a count, up to about so many bytes but one entry at least."""
    store = new_store()
    store.open()
    store.write(Changes(added=[entry(seq, 100 + seq // 2, payload=bytes(1000)) for seq in range(1, 11)]))
    store.write(Changes(added=[entry(seq, lane=LANE, key="k", payload=bytes(1000)) for seq in range(11, 21)]))

    def seqs(found: list[Entry]) -> list[int]:
        return [each.seq for each in found]

    assert seqs(store.due((0, 0), 103, 100, 1 << 20)) == [1, 2, 3, 4, 5, 6, 7]
    assert seqs(store.due((102, 5), 105, 100, 1 << 20)) == [5, 6, 7, 8, 9, 10]
    assert seqs(store.due((0, 0), 105, 3, 1 << 20)) == [1, 2, 3]
    assert len(store.due((0, 0), 105, 100, 2500)) == 3
    assert len(store.due((0, 0), 105, 100, 1)) == 1
    assert store.due((106, 0), DUE_MS_MAX, 100, 1 << 20) == []
    assert (store.first_due_ms((103, 7)), store.first_due_ms((106, 0))) == (103, None)
    assert seqs(store.lane(LANE, 15, 3, 1 << 20)) == [15, 16, 17]
    assert seqs(store.lane(LANE, 0, 100, 2500)) == [11, 12, 13]
    assert store.lane("T\x1fbroker-a\x1f30", 0, 100, 1 << 20) == []
    assert store.oldest_seq(0) == 1
    store.close()


def test_a_closed_store_says_so(new_store: NewStore) -> None:
    """A read or write of a store that is not open raises a typed error, and closing twice is allowed."""
    store = new_store()
    if isinstance(store, MemoryStore):
        pytest.skip("memory needs no opening")
    store.open()
    store.close()
    store.close()
    with pytest.raises(RetryStoreUnreachable):
        store.write(Changes(added=[entry(1)]))
    with pytest.raises(RetryStoreUnreachable):
        store.due((0, 0), 1, 1, 1)


def test_a_second_owner_is_refused(new_store: NewStore) -> None:
    """While one process owns the store another one is refused; a read-only open is allowed; after the end it is
    free."""
    first, second, reader = new_store(lease_ms=60_000), new_store(lease_ms=60_000), new_store()
    if first is second:
        pytest.skip("memory has one owner anyway")
    first.open()
    first.write(Changes(added=[entry(1)]))
    with pytest.raises(RetryStoreLocked, match="own"):
        second.open()
    assert reader.open(read_only=True).count == 1
    reader.close()
    first.keep_alive()
    first.close()
    assert second.open().count == 1
    second.close()


@pytest.mark.parametrize("kind", ["redis", "mysql", "postgresql", "sqlite"])
@pytest.mark.slow
def test_an_owner_that_says_nothing_loses_the_store(kind: str, request: Any, tmp_path: Any) -> None:
    """After the lease another process takes over, and later writes of the first one have no effect."""
    from tests.client.durable.conftest import url_of

    url = url_of(kind, request, tmp_path)
    first, second = (open_url(url, StoreOptions(lease_ms=300), SystemClock()) for _ in range(2))
    first.open()
    first.write(Changes(added=[entry(1)]))
    give_up_s = time.monotonic() + 60
    while True:
        try:
            summary = second.open()
            break
        except RetryStoreLocked:
            assert time.monotonic() < give_up_s
            time.sleep(0.05)
    assert summary.count == 1
    with pytest.raises(RetryStoreLocked):
        first.write(Changes(added=[entry(2)], removed=[entry(1)]))
    with pytest.raises(RetryStoreLocked):
        first.keep_alive()
    first.close()
    assert [each.seq for each in second.due((0, 0), 1, 10, 1 << 20)] == [1]
    second.keep_alive()
    second.close()


@pytest.mark.parametrize("kind", ["redis", "mysql", "postgresql", "sqlite"])
def test_an_owner_that_could_not_give_the_store_back_opens_it_again(
    kind: str, request: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was away: the row or key that it finds afterwards is its own, and excludes only others."""
    from tests.client.durable.conftest import url_of

    url = url_of(kind, request, tmp_path)
    made: list[Any] = [open_url(url, StoreOptions(lease_ms=60_000), SystemClock()) for _ in range(2)]
    first, second = made

    def away(*_: Any, **__: Any) -> Any:
        raise ConnectionError("the server is away")

    def close_without_server() -> None:
        first.open()
        with monkeypatch.context() as patch:
            server, call = (first._client, "pipeline") if kind == "redis" else (first._engine, "begin")
            patch.setattr(server, call, away)
            first.close()
        if kind in ("redis", "sqlite"):  # a database server sees that the connection ended
            with pytest.raises(RetryStoreLocked):
                second.open()

    close_without_server()
    first.open()
    first.keep_alive()
    first.close()

    close_without_server()
    second._tokens.made = first._tokens.made  # so it takes over the store, as it would after the lease
    second.open()
    with pytest.raises(RetryStoreLocked):
        first.open()
    second.keep_alive()
    second.close()


@pytest.mark.parametrize("kind", ["redis", "mysql", "postgresql", "sqlite"])
def test_an_opening_whose_answer_was_lost_excludes_only_others(
    kind: str, request: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server took the ownership, and the connection broke before it said so: the next opening takes it back."""
    from tests.client.durable.conftest import url_of

    url = url_of(kind, request, tmp_path)
    first: Any = open_url(url, StoreOptions(lease_ms=60_000), SystemClock())

    def broken(*_: Any, **__: Any) -> Any:
        raise RetryStoreUnreachable("the server is away")

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(first, "_summary", broken)
            patch.setattr(first, "close", lambda: None)
            with pytest.raises(RetryStoreUnreachable):
                first.open()
        if kind == "redis":
            first._client = None
        else:
            first._engine.dispose()
            first._engine = None
    first._token = type(first._token)()
    assert first.open().count == 0
    first.keep_alive()
    first.close()


@pytest.mark.slow
def test_a_database_that_restarts_proves_no_death() -> None:
    """It forgets the locks of owners that live: the lease decides, and the owner goes on with its store."""
    with tempfile.TemporaryDirectory(prefix="pocketmq-postgres-") as directory:
        port = free_port()
        with postgres_at(Path(directory), port) as server:
            first, second = (open_url(server, StoreOptions(lease_ms=60_000), SystemClock()) for _ in range(2))
            first.open()
            first.write(Changes(added=[entry(1)]))
        with pytest.raises(RetryStoreUnreachable):
            first.keep_alive()
        first.close()
        with postgres_at(Path(directory), port):
            with pytest.raises(RetryStoreLocked, match="it may be dead"):
                second.open()
            assert first.open().count == 1
            first.keep_alive()
            first.close()
            assert second.open().count == 1, "given back"
            second.close()


@pytest.mark.slow
def test_a_redis_that_goes_away_is_reported_in_time(tmp_path: Any) -> None:
    """A server that stops or hangs raises within the timeout; after a restart the entries are there."""
    pytest.importorskip("redis")
    port = free_port()
    store = open_url(
        f"redis://127.0.0.1:{port}/0?name=x", StoreOptions(timeout_ms=2000, lease_ms=600_000), SystemClock()
    )
    with pytest.raises(RetryStoreUnreachable):
        store.open()
    with redis_at(tmp_path, port, appendfsync="always") as server:
        store.open()
        store.write(Changes(added=[entry(1)]))
        server.send_signal(19)  # SIGSTOP: it hangs
        begin_s = time.monotonic()
        with pytest.raises(RetryStoreUnreachable):
            store.write(Changes(added=[entry(2)]))
        assert time.monotonic() - begin_s < 30
        server.send_signal(18)  # SIGCONT
    with pytest.raises(RetryStoreError):
        store.due((0, 0), 1, 1, 1)
    store.close()
    with redis_at(tmp_path, port):
        second = open_url(store.name, StoreOptions(timeout_ms=5000), SystemClock())
        with pytest.raises(RetryStoreLocked, match="its lease ends in"):
            second.open()
        assert store.open().count in (1, 2)  # a write that timed out may have succeeded
        store.keep_alive()
        store.close()


def test_a_redis_that_evicts_is_refused(tmp_path: Any) -> None:
    """A server that evicts entries would lose messages."""
    pytest.importorskip("redis")
    port = free_port()
    with redis_at(tmp_path, port, **{"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}):
        store = open_url(f"redis://127.0.0.1:{port}/0", StoreOptions(), SystemClock())
        with pytest.raises(RetryStoreRefused, match="allkeys-lru"):
            store.open()


def test_a_database_that_is_not_there_is_reported() -> None:
    """A port without a server gives a typed error that names the store, without the password."""
    pytest.importorskip("sqlalchemy")
    store = open_url(f"mysql://root:secret@127.0.0.1:{free_port()}/x", StoreOptions(timeout_ms=500), SystemClock())
    with pytest.raises(RetryStoreUnreachable) as caught:
        store.open()
    assert "secret" not in str(caught.value)
    assert "secret" not in store.name


@pytest.mark.parametrize(("url", "extra"), [("mysql://h/d", "sql"), ("postgresql://h/d", "postgresql")])
def test_a_missing_driver_is_named_with_its_extra(url: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL is refused at once, not taken for a server that is away."""
    for driver in ("pymysql", "psycopg"):
        monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(ConfigError, match=rf"pip install 'pocketmq\[{extra}\]'"):
        open_url(url, StoreOptions(), SystemClock())


@pytest.mark.parametrize("url", ["", "rocksdb", "rocksdb:", "ftp://x", "redis://h/0?name=a b", "oracle://x"])
def test_a_bad_url_is_refused(url: str) -> None:
    """The error has the valid forms."""
    with pytest.raises(ConfigError):
        open_url(url, StoreOptions(), SystemClock())


def test_the_name_is_taken_out_of_the_url() -> None:
    """The rest is the server's own URL, with its other options."""
    assert split_name("redis://h:1/0?name=n&x=1", "d") == ("redis://h:1/0?x=1", "n")
    assert split_name("sqlite:////a/b?name=n", "d") == ("sqlite:////a/b", "n")
    assert split_name("mysql://u@h/d?charset=utf8", "d") == ("mysql://u@h/d?charset=utf8", "d")
