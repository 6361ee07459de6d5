"""A reminder for each flight, twenty minutes before it is to leave, with days compressed into seconds.

The flights of some days leave New York in ``--seconds`` seconds. For each of them a message is sent ahead that the
broker delivers when its boarding closes. Then they are read as they come: one for each, none early, none twice.
See README.md beside this file.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Annotated

import example
import msgspec
import typer
from rich.console import Console

from pocketmq.client import Message, Producer, PullConsumer

BOARDING_CLOSES_MIN = 20
WINDOW = 500
DAY_MIN = 1440


class Reminder(msgspec.Struct):
    """The body of the message; ``due_ms``: when its boarding closes in compressed time, ms since 1970."""

    number: int
    flight: str
    gate: str
    leaves: str
    due_ms: int


class Flight(msgspec.Struct):
    """The columns that a reminder needs; ``hour`` and ``minute``: when it is to leave."""

    month: int
    day: int
    hour: int
    minute: int
    carrier: str
    flight: str
    origin: str

    @property
    def due_min(self) -> int:
        """Minutes from the first midnight until boarding closes."""
        return max(0, (self.day - 1) * DAY_MIN + self.hour * 60 + self.minute - BOARDING_CLOSES_MIN)


def flights_of(days: int) -> Iterator[Flight]:
    """Yield the flights of the first days of January 2013."""
    for row in example.flights():
        flight = msgspec.convert(row, Flight, strict=False)
        if flight.month > 1 or flight.day > days:
            return
        yield flight


async def send(namesrv: str, topic: str, flights: list[Flight], first_ms: int, ms_per_min: float) -> None:
    """Send all reminders ahead."""
    async with Producer(group="reminders", namesrv=namesrv) as producer:
        for start in range(0, len(flights), WINDOW):
            futures = []
            for number, flight in enumerate(flights[start : start + WINDOW], start):
                due_ms = first_ms + int(flight.due_min * ms_per_min)
                name = f"{flight.carrier}{flight.flight}"
                reminder = Reminder(number, name, flight.origin, f"{flight.hour:02d}:{flight.minute:02d}", due_ms)
                message = Message(
                    topic, msgspec.json.encode(reminder), tags=flight.origin, keys=name, deliver_time_ms=due_ms
                )
                futures.append(producer.send_nowait(message))
            await asyncio.gather(*futures)


async def receive(namesrv: str, topic: str, count: int, console: Console) -> bool:
    """Read the reminders as they come; return whether each came once and none early."""
    seen: set[int] = set()
    late: list[int] = []
    early = twice = 0
    async with PullConsumer(group="gates", namesrv=namesrv) as consumer:
        async for message in consumer.stream(topic, start="earliest"):
            reminder = msgspec.json.decode(message.body, type=Reminder)
            twice += reminder.number in seen
            seen.add(reminder.number)
            late.append(message.store_timestamp - reminder.due_ms)
            early += late[-1] < 0
            if len(seen) % 500 == 0:
                console.print(f"boarding closes: {reminder.flight} from {reminder.gate}, leaves at {reminder.leaves}")
            if len(seen) == count:
                break
    late.sort()
    console.print(
        f"{len(seen):,} reminders of {count:,} flights, {twice} twice, {early} early; "
        f"late by p50 {late[len(late) // 2]} ms, p99 {late[int(len(late) * 0.99)]} ms, at most {late[-1]} ms",
        soft_wrap=True,
    )
    return not early and not twice


async def run(namesrv: str, days: int, seconds: float, console: Console) -> bool:
    """Send ahead, receive in time, delete the topic."""
    topic = f"Boarding_{time.time_ns() // 1_000_000}"
    flights = list(flights_of(days))
    ahead_ms = 1000 + len(flights) // 2
    first_ms = time.time_ns() // 1_000_000 + ahead_ms
    await send(namesrv, topic, flights, first_ms, seconds * 1000 / (days * DAY_MIN))
    fine = await receive(namesrv, topic, len(flights), console)
    await example.delete_topic(namesrv, topic)
    return fine


def main(
    namesrv: Annotated[str, typer.Option(help="Name server of a running broker; without it one is started.")] = "",
    days: Annotated[int, typer.Option(min=1, max=31, help="Days of January 2013.")] = 3,
    seconds: Annotated[float, typer.Option(min=1, help="How long they take.")] = 8,
) -> None:
    """Remind of each flight when its boarding closes. Exit code 0: all in time, 1: not, 2: failed."""

    def remind() -> bool:
        with example.broker_at(namesrv) as where:
            return asyncio.run(run(where, days, seconds, Console()))

    example.exit_with(remind)


if __name__ == "__main__":
    typer.run(main)
