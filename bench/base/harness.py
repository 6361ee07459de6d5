"""What every case of PocketMQ's own stands on: a directory, a broker, a loop, rounds in turn, medians.

Lives here: ``scaled`` (the short form of a case), ``workspace``, ``own_broker``, ``in_loop``, ``in_turns``,
``medians``, ``fill``. Loads and percentiles: ``pocketmq.cli.bench.cases``, which the installed command has, too.
"""

import asyncio
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from bench.base.broker_process import BrokerProcess
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
    """A directory on the disk that the benchmark is started on; it is removed at the end."""
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


def in_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end in a loop as a broker or a client has it."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


def in_turns(rounds: int, kinds: Iterable[K], measure: Callable[[K], T]) -> dict[K, list[T]]:
    """Measure each kind in each round, so that whatever else the machine does falls on all of them alike."""
    found: dict[K, list[T]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, of_kind in found.items():
            of_kind.append(measure(kind))
    return found


def medians(rounds: Sequence[Mapping[str, float]], digits: int = 3) -> dict[str, float]:
    """Return the median of each figure."""
    return {name: round(statistics.median(each[name] for each in rounds), digits) for name in rounds[0]}


async def fill(namesrv: str, topic: str, queues: int, count: int, make: Callable[[int], Message]) -> None:
    """Create a topic and send ``make(0)`` to ``make(count - 1)`` in batches."""
    async with Admin(namesrv) as admin:
        await admin.create_topic(topic, queues=queues)
    async with Producer(group="bench-fill", namesrv=namesrv) as producer:
        for start in range(0, count, FILL_BATCH):
            await producer.send_batch([make(number) for number in range(start, min(start + FILL_BATCH, count))])
