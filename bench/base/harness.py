"""The base of PocketMQ's own cases: a directory, a broker, a loop, rounds in turn, medians.

Lives here: ``scaled`` (the short form of a case), ``workspace``, ``own_broker``, ``served``, ``faulty_disk``,
``in_loop``, ``in_turns``, ``medians``, ``tails``, ``fill``. Loads and percentiles: ``pocketmq.cli.bench.cases``, which
the installed command has, too.
"""

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from bench.base.broker_process import BrokerProcess
from pocketmq.cli.bench import cases
from pocketmq.client import Message, Producer
from pocketmq.client.admin.admin import Admin
from pocketmq.remoting.loop import new_event_loop

QUICK = "BENCH_QUICK"
"""Set in the environment by ``python -m bench --quick``, before the module of a case is imported."""
FILL_BATCH = 2000

Row = dict[str, object]
T = TypeVar("T")
K = TypeVar("K")


def scaled(full: T, quick: T) -> T:
    """Return the value for a whole run, or the one for a short one."""
    return quick if os.environ.get(QUICK) else full


@contextmanager
def workspace() -> Iterator[Path]:
    """A directory on the disk of the current directory; it is removed at the end."""
    directory = Path(tempfile.mkdtemp(dir=".")).resolve()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def own_broker(*settings: str) -> Iterator[BrokerProcess]:
    """A broker with a store of its own, which is removed at the end."""
    with workspace() as directory, BrokerProcess(directory / "data", *settings) as broker:
        yield broker


@contextmanager
def served(module: str, *arguments: str) -> "Iterator[tuple[int, str]]":
    """Run a module in a process that serves until it is terminated; yield its id and the first line it prints."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.terminate()


def faulty_disk(rules_file: Path, *rules: Mapping[str, object]) -> list[str]:
    """Write rules for the fault-injecting file system; return the settings of a broker that follows them."""
    rules_file.write_text(json.dumps({"rules": rules}))
    return ["fault.enable=true", f"fault.control_file={rules_file}"]


def in_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end in a loop as a broker or a client has it."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


def in_turns(rounds: int, kinds: Iterable[K], measure: Callable[[K], T]) -> dict[K, list[T]]:
    """Measure each kind in each round, so that other work on the machine affects all of them alike."""
    found: dict[K, list[T]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, of_kind in found.items():
            of_kind.append(measure(kind))
    return found


def medians(rounds: Sequence[Mapping[str, float]], digits: int = 3) -> dict[str, float]:
    """Return the median of each metric."""
    return {name: round(statistics.median(each[name] for each in rounds), digits) for name in rounds[0]}


def tails(row: cases.Row, digits: int = 4) -> dict[str, float]:
    """Return median and p99 of a load's latencies in ms; 0 where none was taken."""
    return {f"p{at}_ms": round(row.percentile_ms(at / 100) or 0.0, digits) for at in (50, 99)}


async def fill(namesrv: str, topic: str, queues: int, count: int, make: Callable[[int], Message]) -> None:
    """Create a topic and send ``make(0)`` to ``make(count - 1)`` in batches."""
    async with Admin(namesrv) as admin:
        await admin.create_topic(topic, queues=queues)
    async with Producer(group="bench-fill", namesrv=namesrv) as producer:
        for start in range(0, count, FILL_BATCH):
            await producer.send_batch([make(number) for number in range(start, min(start + FILL_BATCH, count))])
