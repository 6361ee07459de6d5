"""One instance of the group that follows each aircraft: in order, and each flight exactly once.

Consumes the topic in order and writes into a SQLite database: the flight, and what its aircraft has flown so far. The
mark that the message is done is part of the same transaction, so that a killed process leaves both or neither.
Started by ``aircraft.py``; see README.md beside this file.
"""

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from pocketmq.client import ConsumeFromWhere, PushConsumer, ReceivedMessage
from pocketmq.client.idempotence import Idempotent

if TYPE_CHECKING:
    from sqlalchemy import Connection

GROUP = "aircraft"


class Departure(msgspec.Struct):
    """One row of the package. ``number`` counts the flights of its aircraft from 1."""

    row: int
    tailnum: str
    number: int
    distance: int


def fly(batch: list[ReceivedMessage], connection: "Connection", worker: str) -> None:
    """Write down some flights, in their order. Raises ``ValueError`` when one does not follow the last of its aircraft:
    then nothing is written, and the queue stands still until somebody looks."""
    execute = connection.exec_driver_sql
    for message in batch:
        event = msgspec.json.decode(message.body, type=Departure)
        found = execute("SELECT flights FROM aircraft WHERE tailnum = ?", (event.tailnum,)).first()
        flights = 0 if found is None else found[0]
        if event.number != flights + 1:
            raise ValueError(f"flight {event.number} of {event.tailnum} came after flight {flights}")
        execute(
            "INSERT INTO flown (row, tailnum, number, distance, worker) VALUES (?, ?, ?, ?, ?)",
            (event.row, event.tailnum, event.number, event.distance, worker),
        )
        execute(
            "INSERT INTO aircraft VALUES (?, 1, ?) ON CONFLICT (tailnum) DO UPDATE SET flights = flights + 1,"
            " distance = distance + excluded.distance",
            (event.tailnum, event.distance),
        )


async def work(namesrv: str, topic: str, database: str, worker: str, commit_every_ms: int) -> None:
    """Consume until a signal; then stop gracefully and print the counts."""
    async with Idempotent(f"sqlite:///{database}", scope=GROUP) as idempotent:
        consumer = PushConsumer(
            GROUP,
            namesrv,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            rebalance_interval_ms=2_000,
            persist_interval_ms=commit_every_ms,
        )

        @consumer.subscribe_batch(topic, max_messages=32, ordered=True)
        @idempotent.transactional
        def follow(batch: list[ReceivedMessage], connection: "Connection") -> None:
            fly(batch, connection, worker)

        running = asyncio.create_task(consumer.run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        await asyncio.gather(running, return_exceptions=True)
        counts = idempotent.counts
        print(msgspec.json.encode({"done": counts.done, "skipped": counts.skipped}).decode(), flush=True)


def main(
    topic: Annotated[str, typer.Argument(help="Topic of the departures.")],
    database: Annotated[str, typer.Argument(help="SQLite file of effects and marks.")],
    worker: Annotated[str, typer.Option(help="What to write down as the worker.")] = "worker",
    namesrv: Annotated[str, typer.Option(help="Name server.")] = "127.0.0.1:9876",
    commit_every_ms: Annotated[int, typer.Option(min=1, help="How often offsets are committed.")] = 5_000,
) -> None:
    """Follow the aircraft until a signal."""
    asyncio.run(work(namesrv, topic, database, worker, commit_every_ms))


if __name__ == "__main__":
    typer.run(main)
