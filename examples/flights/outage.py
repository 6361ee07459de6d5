"""50,000 flights sent while every broker is down for ten seconds and the application is killed and restarted once.

The program starts a name server, two brokers and the application, each in a process of its own. The application sends
the flights with a durable retry on RocksDB, in order of their carriers, and writes down how far it is. On the way both
brokers are killed (kill -9) and started again later; in the middle of that the application is killed, too, and started
again. Then the topic is read: every flight must be there, each carrier's in order, and a flight that is there twice
must have the same unique id both times. See README.md beside this file.
"""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import example
import typer
from rich.console import Console

from pocketmq.client import IdentifiedMessage, Producer, PullConsumer, SendStatus
from pocketmq.client.durable import DurableRetry, NotSafe, RetryRule

TOPIC = "Departures"
WINDOW = 250
IDS = uuid.UUID("6a1f7f1e-5a53-4f0e-9a5a-2f6c3a1a7e10")
GIVE_UP_S = 180.0


def flights(count: int) -> Iterator[tuple[int, str, bytes]]:
    """Yield number, carrier and body of the first flights of 2013."""
    for number, row in enumerate(itertools.islice(example.flights(), count)):
        yield number, row["carrier"], json.dumps({"number": number, **row}).encode()


# -- the application -----------------------------------------------------------------------------------------------


async def application(namesrv: str, directory: Path, count: int, rate: int) -> None:
    """Send what has not been taken yet, window by window; end when nothing waits any more.

    The id of a message comes from its number: what is sent again after the kill has the same one.
    """
    progress = directory / "progress"
    done = int(progress.read_text() or 0) if progress.exists() else 0
    retry = DurableRetry(
        f"rocksdb://{directory / 'retry'}",
        order_by_key=True,
        rules=(RetryRule(backoff_ms_first=200, backoff_ms_max=2_000),),
    )
    async with Producer("departures", namesrv, durable_retry=retry, send_msg_timeout_ms=1_000) as producer:
        begin_s, first = time.monotonic(), done
        rest = itertools.islice(flights(count), done, None)
        while window := list(itertools.islice(rest, WINDOW)):
            batch = [
                IdentifiedMessage(
                    TOPIC, body, msg_id=uuid.uuid5(IDS, str(number)).hex.upper(), keys=str(number), sharding_key=carrier
                )
                for number, carrier, body in window
            ]
            while True:
                try:
                    receipts = await producer.send_batch(batch)
                    break
                except NotSafe as error:  # neither broker nor store has it: wait and send it again
                    print(error, file=sys.stderr)
                    await asyncio.sleep(0.5)
            done += len(batch)
            _write(progress, str(done))
            waiting = sum(receipt.status is SendStatus.STORED_FOR_RETRY for receipt in receipts)
            print(json.dumps({"sent": done, "for_retry": waiting, "waiting": retry.state.waiting}), flush=True)
            ahead_s = (done - first) / rate - (time.monotonic() - begin_s)
            await asyncio.sleep(max(ahead_s, 0))
        while retry.state.waiting:  # noqa: ASYNC110 - the count is the store's
            await asyncio.sleep(0.05)
        print(json.dumps({"sent": done, "for_retry": 0, "waiting": 0, "delivered": retry.delivered_total}), flush=True)


def _write(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    os.replace(temporary, path)


# -- the incident --------------------------------------------------------------------------------------------------


class Process:
    """One of the programs, ended by its id."""

    def __init__(self, *arguments: str, errors: Path) -> None:
        self._arguments = [sys.executable, *arguments]
        self._errors = errors
        running.append(self)
        self.start()

    def start(self) -> None:
        """Start it and wait for its first line."""
        with self._errors.open("a") as errors:
            self.process = subprocess.Popen(self._arguments, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            raise OSError(f"{' '.join(self._arguments[:4])} printed nothing: {self._errors.read_text()[-2000:]}")

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the lines that the application prints."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def end(self, number: signal.Signals) -> None:
        """Send a signal, if it runs, and wait for the end."""
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.communicate(timeout=30)


running: list[Process] = []
"""All processes, in the order of their start."""


def incident(directory: Path, count: int, down_s: float, rate: int, console: Console) -> str:
    """Let it happen; return the name server's address while the brokers run (the caller ends all in ``running``)."""
    errors = directory / "errors"
    daemon = ("-m", "pocketmq.cli.main")
    namesrv_port, *ports = example.free_ports(3)
    namesrv = f"127.0.0.1:{namesrv_port}"
    Process(*daemon, "namesrv", "--namesrv-port", namesrv_port, "--log-level", "error", errors=errors)
    brokers = []
    for name, port in zip(("broker-a", "broker-b"), ports, strict=True):
        options = {"namesrv": namesrv, "data-dir": directory / name, "broker-port": port, "log-level": "error"}
        words = _words({**options, "set": f"broker.broker_name={name}"})
        brokers.append(Process(*daemon, "broker", *words, errors=errors))
    example.create_topics(namesrv, TOPIC, queues=4)
    options = {"namesrv": namesrv, "directory": directory, "count": count, "rate": rate}
    sender = Process(__file__, *_words(options), errors=errors)
    lines = sender.lines()
    _until(lines, count // 5)
    for broker in brokers:
        broker.end(signal.SIGKILL)
    down_at_s = time.monotonic()
    console.print(f"at {count // 5:,} flights: both brokers killed")
    at = _until(lines, 0, until_s=down_at_s + down_s / 2)
    sender.end(signal.SIGKILL)
    console.print(f"at {at.get('sent', 0):,} flights, {at.get('waiting', 0):,} of them waiting: application killed")
    sender.start()
    lines = sender.lines()
    time.sleep(max(down_at_s + down_s - time.monotonic(), 0))
    for broker in brokers:
        broker.start()
    console.print(f"after {time.monotonic() - down_at_s:.1f} s: both brokers are back")
    last = _until(lines, count + 1)
    code = sender.process.wait(30)
    console.print(f"application ended with {code}, {last.get('delivered', 0):,} flights were delivered from the store")
    return namesrv


def _words(options: Mapping[str, object]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def _until(lines: Iterator[dict[str, Any]], sent: int, *, until_s: float = 0.0) -> dict[str, Any]:
    """Follow the application until it has sent ``sent`` flights, a time or its end; return its last line."""
    give_up_s, last = time.monotonic() + GIVE_UP_S, {}
    for last in lines:
        if time.monotonic() > give_up_s:
            raise TimeoutError("the application does not come to its end")
        if (until_s and time.monotonic() >= until_s) or (sent and last["sent"] >= sent):
            break
    return last


# -- what arrived --------------------------------------------------------------------------------------------------


async def judge(namesrv: str, count: int, console: Console) -> bool:
    """Read everything; return whether all flights are there, in order, and copies have one id."""
    found: list[tuple[int, str, int, int, int, str]] = []
    async with PullConsumer("arrivals", namesrv=namesrv) as consumer:
        async for message in consumer.stream(TOPIC, start="earliest", stop_at_end=True):
            place = (message.store_timestamp, message.broker_name, message.queue_id, message.queue_offset)
            found.append((*place, int(message.keys[0]), f"{message.sharding_key}\n{message.msg_id}"))
    found.sort()
    ids: dict[int, set[str]] = {}
    last: dict[str, int] = {}
    reordered = 0
    for *_, number, text in found:
        carrier, msg_id = text.split("\n")
        if number not in ids:  # of copies the first one counts
            reordered += number < last.get(carrier, -1)
            last[carrier] = number
        ids.setdefault(number, set()).add(msg_id)
    lost = sum(number not in ids for number in range(count))
    other_ids = sum(len(each) > 1 for each in ids.values())
    console.print(
        f"{len(found):,} messages: {lost} of {count:,} flights lost, {reordered} out of order, "
        f"{len(found) - len(ids)} copies, {other_ids} of them with another id"
    )
    return not (lost or reordered or other_ids) and len(ids) == count


def main(
    count: Annotated[int, typer.Option(min=1000, max=336_776, help="Flights.")] = 50_000,
    down_seconds: Annotated[float, typer.Option(min=1, help="How long both brokers are away.")] = 10,
    rate: Annotated[int, typer.Option(min=100, help="Flights a second.")] = 2_500,
    namesrv: Annotated[str, typer.Option(hidden=True)] = "",
    directory: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Lose nothing while brokers and application are killed. Exit code 0: all arrived in order, 1: not, 2: failed."""

    def suffer() -> bool:
        if directory:
            asyncio.run(application(namesrv, Path(directory), count, rate))
            return True
        console = Console(soft_wrap=True)
        with tempfile.TemporaryDirectory(prefix="pocketmq-outage-") as own:
            try:
                return asyncio.run(judge(incident(Path(own), count, down_seconds, rate, console), count, console))
            finally:
                for process in reversed(running):
                    process.end(signal.SIGTERM)

    example.exit_with(suffer)


if __name__ == "__main__":
    typer.run(main)
