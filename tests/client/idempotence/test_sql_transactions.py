"""Handlers that change a database in the transaction of their mark: SQLite and MariaDB."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.handlers.consume_result import ConsumeResult
from pocketmq.client.idempotence import Idempotent
from pocketmq.common.errors import ConfigError
from pocketmq.common.message import ReceivedMessage
from tests.client.idempotence.conftest import message_of


@pytest.fixture
def sql_text(request: Any, tmp_path: Path) -> str:
    """Return the URL of a database that the test and the store share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/m.db"
    text: str = request.getfixturevalue("mariadb_server")
    return text


SQL = pytest.mark.parametrize("sql_text", ["sqlite", pytest.param("mariadb", marks=pytest.mark.slow)], indirect=True)


def effects(idempotent: Idempotent) -> list[int]:
    import sqlalchemy as sa

    store: Any = idempotent.store
    with store.engine.begin() as connection:
        return [row[0] for row in connection.execute(sa.text("SELECT cents FROM charges ORDER BY cents"))]


def make_table(idempotent: Idempotent) -> None:
    import sqlalchemy as sa

    store: Any = idempotent.store
    with store.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS charges"))
        connection.execute(sa.text("CREATE TABLE charges (cents INTEGER)"))


@SQL
async def test_effect_and_mark_commit_together_or_not_at_all(sql_text: str) -> None:
    """A transaction that fails leaves neither; one that commits leaves both; a duplicate finds both and adds none."""
    async with Idempotent(sql_text, scope=f"t{id(sql_text)}") as idempotent:
        make_table(idempotent)
        message = message_of()

        async def fails() -> None:
            async with idempotent.transaction(message) as transaction:
                assert transaction.is_first
                assert await transaction.execute("INSERT INTO charges VALUES (:cents)", {"cents": 1}) == 1
                raise ValueError("after the effect")

        with pytest.raises(ValueError, match="after the effect"):
            await fails()
        assert effects(idempotent) == []
        for _ in range(2):
            async with idempotent.transaction(message) as transaction:
                if transaction.is_first:
                    await transaction.execute("INSERT INTO charges VALUES (:cents)", {"cents": 2})
        assert effects(idempotent) == [2]
        counts = idempotent.counts
        assert (counts.first, counts.failed, counts.done, counts.skipped) == (2, 1, 1, 1)
        with pytest.raises(ConfigError, match="ended"):
            await transaction.execute("SELECT 1")


@SQL
async def test_of_two_transactions_the_second_waits_for_the_first(sql_text: str) -> None:
    """If the first commits, the second finds it done; if it rolls back, the second does it."""
    async with Idempotent(sql_text, scope=f"r{id(sql_text)}") as idempotent:
        make_table(idempotent)

        wrote = asyncio.Event()

        async def racer(message: ReceivedMessage, cents: int, fails: bool) -> None:
            async with idempotent.transaction(message) as transaction:
                if transaction.is_first:
                    await transaction.execute("INSERT INTO charges VALUES (:cents)", {"cents": cents})
                    wrote.set()
                    await asyncio.sleep(0.05)
                    if fails:
                        raise ValueError("no")

        for fails, left in ((False, [1]), (True, [1, 2])):
            message = message_of()
            wrote.clear()
            first = asyncio.create_task(racer(message, 1 if not fails else 9, fails))
            await wrote.wait()
            second = asyncio.create_task(racer(message, 2, False))
            await asyncio.gather(first, second, return_exceptions=True)
            assert effects(idempotent) == left


@SQL
async def test_a_plain_handler_in_its_transaction(sql_text: str) -> None:
    """``transactional``: single messages and batches; later and exceptions roll back; duplicates are held back."""
    import sqlalchemy as sa

    async with Idempotent(sql_text, scope=f"p{id(sql_text)}") as idempotent:
        make_table(idempotent)
        answers: list[Any] = [ConsumeResult.LATER, ValueError("boom"), None]

        @idempotent.transactional
        def charge(message: ReceivedMessage, connection: Any) -> Any:
            connection.execute(sa.text("INSERT INTO charges VALUES (:cents)"), {"cents": int(message.body)})
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        message = message_of(b"7")
        assert (await charge(message)).delay_level == 0
        with pytest.raises(ValueError, match="boom"):
            await charge(message)
        assert effects(idempotent) == []
        assert await charge(message) is None
        assert await charge(message) is None
        assert (effects(idempotent), answers) == ([7], [])

        @idempotent.transactional
        def charge_all(batch: list[ReceivedMessage], connection: Any) -> None:
            values = [{"cents": int(each.body)} for each in batch]
            connection.execute(sa.text("INSERT INTO charges VALUES (:cents)"), values)

        batch = [message_of(b"8", "B8"), message_of(b"9", "B9"), message_of(b"99", "B9")]
        await charge_all(batch)
        await charge_all(batch)
        assert effects(idempotent) == [7, 8, 9]


async def test_only_sql_has_transactions() -> None:
    """Other stores refuse at once."""
    idempotent = Idempotent("memory:")
    with pytest.raises(ConfigError, match="SQL"):
        idempotent.transaction(message_of())


async def test_many_transactions_at_once_do_not_starve_each_other(tmp_path: Path) -> None:
    """Thirty at a time on a database with one writer: all end, each effect is there once."""
    async with Idempotent(f"sqlite:///{tmp_path}/m.db", scope="s") as idempotent:
        make_table(idempotent)
        messages = [message_of(b"%d" % number, f"M{number}") for number in range(15)] * 2

        async def handle(message: ReceivedMessage) -> None:
            async with idempotent.transaction(message) as transaction:
                if transaction.is_first:
                    await transaction.execute("INSERT INTO charges VALUES (:cents)", {"cents": int(message.body)})

        async with asyncio.timeout(60):
            await asyncio.gather(*map(handle, messages))
        assert effects(idempotent) == list(range(15))


async def test_a_cancelled_beginning_leaves_no_lock(tmp_path: Path) -> None:
    """The next transaction begins at once."""
    async with Idempotent(f"sqlite:///{tmp_path}/m.db", scope="s") as idempotent:
        make_table(idempotent)

        async def handle(message: ReceivedMessage) -> None:
            async with idempotent.transaction(message):
                pass

        for number in range(5):
            task = asyncio.create_task(handle(message_of(b"x", f"C{number}")))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        async with asyncio.timeout(60):
            await handle(message_of(b"x", "last"))
