"""Flights streamed through Spark while they are sent: the table equals pandas' result for the same rows.

``examples/flights/delays.py`` whole, with kills, is a scenario; a few days of flights run in the tests' own session.
"""

import asyncio
import importlib.util
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from pocketmq.testing import PocketBroker

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
EXAMPLES = Path(__file__).parents[3] / "examples" / "flights"
sys.path.append(str(EXAMPLES))  # the examples import example.py beside them


def module(name: str) -> ModuleType:
    """Import an example, which is a script and not part of a package."""
    spec = importlib.util.spec_from_file_location(f"flights_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_few_days_of_flights_are_added_up(spark: SparkSession, broker: PocketBroker, tmp_path: Path) -> None:
    """Micro-batches of flights that are sent meanwhile, some of them twice: each hour equals pandas' result, in files
    and as messages.
    """
    delays, job = module("delays"), module("delays_job")
    flights = delays.read_flights(3000)
    delays.example.create_topics(broker.namesrv, "Flights", "Delays", queues=delays.QUEUES)
    chunks = [chunk[at : at + 500] for chunk in delays.bodies(flights) for at in range(0, len(chunk), 500)]
    chunks.insert(3, chunks[1])  # a producer that did not learn that its send arrived
    sender = threading.Thread(
        target=lambda: asyncio.run(delays.send(broker.namesrv, "Flights", iter(chunks), rate=2000))
    )
    stream = job.flights(spark, broker.namesrv, "Flights", maxOffsetsPerTrigger="1500")
    queries = job.start(
        job.delays(stream, job.read_weather(spark, str(delays.example.data_file("weather")))),
        tmp_path,
        broker.namesrv,
        "Delays",
    )
    sender.start()
    try:
        sender.join()
        sent = asyncio.run(delays.stored(broker.namesrv, "Flights"))
        assert sent == len(flights) + 500
        while min(job.position(query.lastProgress) if query.lastProgress else 0 for query in queries) < sent:
            assert all(query.exception() is None for query in queries), [query.exception() for query in queries]
            queries[0].awaitTermination(0.2)
        closing = b'{"row": -1, "time_hour": "2015-01-01T00:00:00Z", "carrier": "", "origin": ""}'
        asyncio.run(delays.send(broker.namesrv, "Flights", iter([[closing]]), rate=2000))
        job.watch(queries, "2014-06-01")
    finally:
        for query in queries:
            query.stop()
    wanted = delays.expected(flights)
    assert wanted["flights"].max() > 1
    assert delays.difference(delays.tidy(delays.written(tmp_path / "table")), wanted) == ""
    assert delays.difference(delays.tidy(asyncio.run(delays.received(broker.namesrv, "Delays"))), wanted) == ""


@pytest.mark.scenario
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("killed", ["nothing", "driver", "broker"])
def test_all_flights_of_a_year_are_added_up_whatever_dies(java: Path, killed: str) -> None:
    """336,776 flights, sent while Spark streams them; the driver or the broker is killed with -9 in the middle."""
    command = [sys.executable, str(EXAMPLES / "delays.py"), "--kill", killed]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1700)
    assert run.returncode == 0, run.stdout + run.stderr
    assert killed == "nothing" or f"{killed} killed when " in run.stdout
    assert "116,904 hours of files, 336,776 flights" in run.stdout
    assert "116,904 hours of messages, 336,776 flights" in run.stdout
    assert run.stdout.rstrip().endswith("equal: yes")
