"""What a database shows of kept messages: their ids, in tables of this version and of earlier ones."""

from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.durable.entry import Entry
from pocketmq.client.durable.opening import StoreOptions, open_url
from pocketmq.client.durable.store import DUE_MS_MAX, Changes, RetryStore
from pocketmq.common.clock import SystemClock
from tests.client.durable.conftest import url_of
from tests.client.durable.test_ownership import open_engine

pytestmark = pytest.mark.slow

IDS = ["7F0000010001", "ac11000200010000"]


@pytest.fixture(params=["sqlite", "mysql", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, request, tmp_path)


def store_at(url: str) -> RetryStore:
    return open_url(url, StoreOptions(), SystemClock())


def kept(store: RetryStore, seq: int, msg_id: str) -> None:
    store.write(Changes(added=[Entry(seq, 0, 0, "", "", b"payload", msg_id)]))


def ids(store: RetryStore) -> list[Any]:
    """Return what a query of the database's operator finds, in order."""
    import sqlalchemy

    with open_engine(store) as engine, engine.connect() as connection:
        query = sqlalchemy.text("SELECT msg_id FROM pocketmq_retry WHERE name = :name ORDER BY seq")
        return list(connection.execute(query, {"name": store._store_name}).scalars())  # type: ignore[attr-defined]


def make_old(store: RetryStore) -> None:
    """Leave the table as an earlier version made it."""
    import sqlalchemy

    with open_engine(store) as engine, engine.begin() as connection:
        table = " ON pocketmq_retry" if engine.dialect.name == "mysql" else ""
        connection.execute(sqlalchemy.text(f"DROP INDEX pocketmq_retry_msg_id{table}"))
        connection.execute(sqlalchemy.text("ALTER TABLE pocketmq_retry DROP COLUMN msg_id"))


def seqs(store: RetryStore) -> list[int]:
    return [entry.seq for entry in store.due((0, 0), DUE_MS_MAX, 100, 1 << 20)]


def test_a_database_shows_the_ids_of_the_messages_that_wait(url: str) -> None:
    """One waits twice under its id: the column is no key."""
    store = store_at(url)
    store.open()
    for seq, msg_id in enumerate([*IDS, IDS[0]], 1):
        kept(store, seq, msg_id)
    assert ids(store) == [*IDS, IDS[0]]
    assert seqs(store) == [1, 2, 3]
    store.close()


def test_a_table_of_an_earlier_version_gets_the_column(url: str) -> None:
    """What waits in it stays, without an id."""
    store = store_at(url)
    store.open()
    kept(store, 1, IDS[0])
    store.close()
    make_old(store)
    assert store.open(read_only=True).count == 1
    store.close()
    assert store.open().count == 1
    kept(store, 2, IDS[1])
    assert ids(store) == [None, IDS[1]]
    assert seqs(store) == [1, 2]
    store.close()
    with open_engine(store) as engine:
        import sqlalchemy

        indexes = sqlalchemy.inspect(engine).get_indexes("pocketmq_retry")
    assert ["name", "msg_id"] in [index["column_names"] for index in indexes]


def test_two_processes_may_add_the_column_at_the_same_moment(url: str) -> None:
    first, second = store_at(url), store_at(url)
    first.open()
    first.close()
    make_old(first)

    def overtake() -> None:
        first.open()
        first.close()

    before_altering(second, overtake)
    second.open()
    kept(second, 1, IDS[0])
    assert ids(second) == IDS[:1]
    second.close()


def test_an_account_that_may_not_alter_tables_keeps_messages_all_the_same(url: str) -> None:
    import sqlalchemy

    store = store_at(url)
    store.open()
    store.close()
    make_old(store)

    def refuse() -> None:
        raise sqlalchemy.exc.ProgrammingError("ALTER TABLE", {}, Exception("ALTER command denied to user"))

    before_altering(store, refuse)
    store.open()
    kept(store, 1, IDS[0])
    assert seqs(store) == [1]
    store.close()


def before_altering(store: RetryStore, do: Any) -> None:
    """Let the next opening of a store do something just before it alters the table."""
    import sqlalchemy

    make_engine = store._make_engine  # type: ignore[attr-defined]
    seen: list[str] = []

    def engine_with_a_rival() -> Any:
        engine = make_engine()

        @sqlalchemy.event.listens_for(engine, "before_cursor_execute")
        def overtake(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
            if statement.startswith("ALTER TABLE") and not seen:
                seen.append(statement)
                do()

        return engine

    store._make_engine = engine_with_a_rival  # type: ignore[attr-defined]
