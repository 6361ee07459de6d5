"""Seats of flights, booked in SQLite and announced by a message in one transaction, while everything is killed.

An agent books orders one after the other: a row in SQLite, and a message that consumers get if, and only if, the row is
there. It is killed with ``kill -9`` at each step of a transaction and started again; then the broker is killed at each
step, too. At the end the topic and the table have to agree, message by message. See README.md beside this file.
"""

import asyncio
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Annotated, Final

import example
import typer
from rich.console import Console

from pocketmq.cli.own_broker import OwnBroker
from pocketmq.client import Message, PullConsumer, TransactionProducer
from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.transaction_admin import open_transactions
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import ReceivedMessage

TOPIC: Final = "Bookings"
STEPS: Final = (
    "before the half message",
    "half message stored",
    "inside the local transaction",
    "local transaction committed",
    "decision sent",
)
ORDERS_PER_FLIGHT: Final = 3
SEATS: Final = 2
"""So every third order finds its flight sold out, and its message is rolled back."""
SETTINGS: Final = ("broker.transaction_time_out=300", "broker.transaction_check_interval=300")

TABLES: Final = """
CREATE TABLE IF NOT EXISTS flights
    (flight INTEGER PRIMARY KEY, name TEXT NOT NULL, seats INTEGER NOT NULL CHECK (seats >= 0));
CREATE TABLE IF NOT EXISTS bookings
    (number INTEGER PRIMARY KEY, flight INTEGER NOT NULL, msg_id TEXT NOT NULL UNIQUE);
"""


def flight_names(count: int) -> list[str]:
    """Return carrier and number of the first flights of 2013."""
    return [row["carrier"] + row["flight"] for row in itertools.islice(example.flights(), count)]


def connect(database: Path) -> sqlite3.Connection:
    """Open the database; transactions are begun by hand."""
    connection = sqlite3.connect(database, isolation_level=None, timeout=30)
    connection.execute("PRAGMA synchronous=FULL")
    return connection


class Agent:
    """Books every order that is not booked yet.

    ``killed_at``: at this step, from the third order of this run on, the agent kills itself. ``announces``: it prints
    each step in turn, one every three orders, and waits for a line before it goes on.
    """

    def __init__(self, database: Path, namesrv: str, killed_at: str, announces: bool) -> None:
        self._database = database
        self._connection = connect(database)
        self._namesrv = namesrv
        self._killed_at = killed_at
        self._to_announce = list(STEPS) if announces else []
        self._orders = 0

    def at(self, step: str) -> None:
        """Be killed here, or let others be killed."""
        if self._orders >= 3 and step == self._killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if (
            self._to_announce
            and self._orders >= 3 * (len(STEPS) + 1 - len(self._to_announce))
            and step == self._to_announce[0]
        ):
            del self._to_announce[0]
            print(f"at {step}", flush=True)
            sys.stdin.readline()

    def is_booked(self, message: ReceivedMessage) -> bool:
        """Answer the broker's check: the row that the local transaction wrote has the message's id."""
        with closing(connect(self._database)) as connection:
            row = connection.execute("SELECT 1 FROM bookings WHERE msg_id = ?", (message.msg_id,)).fetchone()
        return row is not None

    async def run(self) -> None:
        """Book what is left; come back when no transaction is open."""
        producer = TransactionProducer("agents", self._namesrv, check=self.is_booked, send_msg_timeout_ms=1000)
        async with producer, Admin(self._namesrv) as admin:
            flights = self._connection.execute("SELECT flight, name FROM flights").fetchall()
            done = {number for (number,) in self._connection.execute("SELECT number FROM bookings")}
            for flight, name in flights:
                for number in range(flight * ORDERS_PER_FLIGHT, (flight + 1) * ORDERS_PER_FLIGHT):
                    if number not in done:
                        self._orders += 1
                        await self.book(producer, number, flight, name)
            while True:
                try:
                    if not await open_transactions(admin):
                        return
                except PocketMQError:
                    pass  # the broker is on its way back
                await asyncio.sleep(0.1)

    async def book(self, producer: TransactionProducer, number: int, flight: int, name: str) -> None:
        """Book one order; as often as it takes to store the half message."""
        message = Message(TOPIC, b"%d" % number, keys=[f"order{number}"], sharding_key=name)
        while True:
            self.at(STEPS[0])
            try:
                async with producer.transaction(message) as transaction:
                    self.at(STEPS[1])
                    if self.take_seat(number, flight, transaction.msg_id):
                        self.at(STEPS[3])
                    else:
                        transaction.rollback()
                self.at(STEPS[4])
                return
            except PocketMQError as error:
                print(f"order {number}: {error}".splitlines()[0], file=sys.stderr)
                if self._connection.execute("SELECT 1 FROM bookings WHERE number = ?", (number,)).fetchone():
                    return
                await asyncio.sleep(0.1)

    def take_seat(self, number: int, flight: int, msg_id: str) -> bool:
        """Do the local transaction; False when the flight is sold out."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        taken = connection.execute("UPDATE flights SET seats = seats - 1 WHERE flight = ? AND seats > 0", (flight,))
        if not taken.rowcount:
            connection.execute("ROLLBACK")
            return False
        connection.execute("INSERT INTO bookings VALUES (?, ?, ?)", (number, flight, msg_id))
        self.at(STEPS[2])
        connection.execute("COMMIT")
        return True


def agent_command(database: Path, namesrv: str, *options: str) -> list[str]:
    """Return what starts an agent as a process of its own."""
    return [sys.executable, __file__, "--agent", str(database), "--namesrv", namesrv, *options]


def kill_agents(database: Path, namesrv: str, console: Console) -> None:
    """Let an agent be killed at each step."""
    for step in STEPS:
        code = subprocess.run(agent_command(database, namesrv, "--killed-at", step), timeout=120).returncode
        console.print(f"agent killed: {step}")
        if code != -signal.SIGKILL:
            raise RuntimeError(f"the agent ended with {code} instead of being killed at {step!r}")


def kill_brokers(database: Path, broker: OwnBroker, console: Console) -> None:
    """Let an agent book the rest, and kill the broker at each of its steps."""
    command = agent_command(database, broker.namesrv, "--announces")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        reached = 0
        for line in agent.stdout:
            reached += 1
            broker.kill()
            console.print(f"broker killed: {line.strip().removeprefix('at ')}")
            agent.stdin.write("go on\n")
            agent.stdin.flush()
            broker.start()
    if agent.returncode or reached != len(STEPS):
        raise RuntimeError(f"the agent ended with {agent.returncode} after {reached} of {len(STEPS)} steps")


async def agrees(database: Path, namesrv: str, console: Console) -> bool:
    """Compare table and topic."""
    with closing(connect(database)) as connection:
        rows = dict(connection.execute("SELECT msg_id, number FROM bookings"))
        oversold = connection.execute("SELECT count(*) FROM flights WHERE seats < 0").fetchone()[0]
        free = connection.execute("SELECT sum(seats) FROM flights").fetchone()[0]
        flights = connection.execute("SELECT count(*) FROM flights").fetchone()[0]
    async with PullConsumer(group="audit", namesrv=namesrv) as consumer:
        stream = consumer.stream(TOPIC, start="earliest", stop_at_end=True)
        messages = Counter([(message.msg_id, int(message.body)) async for message in stream])
    missing = set(rows.items()) - set(messages)
    unfounded = set(messages) - set(rows.items())
    twice = sum(count > 1 for count in messages.values())
    console.print(
        f"{len(rows)} bookings, {messages.total()} messages: {len(missing)} missing, "
        f"{len(unfounded)} without a booking, {twice} twice; "
        f"{flights} flights, {free} seats free, {oversold} oversold",
        soft_wrap=True,
    )
    return not (missing or unfounded or twice or oversold or free) and len(rows) == flights * SEATS


def whole(count: int, console: Console) -> bool:
    """Run all of it with a database and a broker of its own."""
    with tempfile.TemporaryDirectory(prefix="booking-") as directory:
        database = Path(directory) / "seats.db"
        with closing(connect(database)) as connection:
            connection.executescript(TABLES)
            seats = [(number, name, SEATS) for number, name in enumerate(flight_names(count))]
            connection.executemany("INSERT INTO flights VALUES (?, ?, ?)", seats)
        data_dir = Path(directory) / "store"
        namesrv_port, broker_port = example.free_ports(2)
        settings = [word for setting in SETTINGS for word in ("--set", setting)]
        arguments = ["--namesrv-port", namesrv_port, "--broker-port", broker_port, *settings]
        with OwnBroker(data_dir=data_dir, arguments=arguments) as broker:
            kill_agents(database, broker.namesrv, console)
            kill_brokers(database, broker, console)
            return asyncio.run(agrees(database, broker.namesrv, console))


def main(
    flights: Annotated[int, typer.Option(min=12, max=100_000, help="Flights whose seats are booked.")] = 14,
    agent: Annotated[Path | None, typer.Option(hidden=True)] = None,
    namesrv: Annotated[str, typer.Option(hidden=True)] = "",
    killed_at: Annotated[str, typer.Option(hidden=True)] = "",
    announces: Annotated[bool, typer.Option("--announces", hidden=True)] = False,
) -> None:
    """Book seats while agent and broker are killed at each step. Exit code 0: table and topic agree, 1: not, 2: no."""

    def book() -> bool:
        if agent is None:
            return whole(flights, Console())
        asyncio.run(Agent(agent, namesrv, killed_at, announces).run())
        return True

    example.exit_with(book)


if __name__ == "__main__":
    typer.run(main)
