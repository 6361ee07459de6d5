"""The lag that a listener reports is the difference of a progress's offsets, and what brokers say of it."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.client import Message, Producer
from pocketmq.client.admin.admin import Admin
from pocketmq.pipeline.lag import Lag, LagListener
from pocketmq.pipeline.source.positions import Positions, QueueKey
from pocketmq.testing import PocketBroker


def text(offsets: dict[QueueKey, int]) -> str:
    return json.dumps(Positions(offsets).to_json())


def progress(*sources: tuple[str | None, str | None], name: str | None = "flow") -> Any:
    """Return the event of a progress with these end and latest offsets."""
    found = [SimpleNamespace(endOffset=end, latestOffset=latest) for end, latest in sources]
    return SimpleNamespace(progress=SimpleNamespace(id="q", name=name, batchId=7, sources=found))


A0, A1, B0 = QueueKey("a", "x", 0), QueueKey("a", "x", 1), QueueKey("b", "x", 0)


def test_rows_by_topic() -> None:
    """Other sources do not count; a queue that the query does not know yet, or that moved back, has no lag."""
    found: list[Lag] = []
    listener = LagListener(found.append)
    ends = {A0: 9, A1: 5, B0: 2, QueueKey("b", "x", 1): 40}
    listener.onQueryProgress(progress((text({A0: 4, A1: 6, B0: 0}), text(ends)), ('{"topic": {"0": 5}}', None)))
    assert [(lag.rows, dict(lag.topics), lag.size_bytes, lag.seconds) for lag in found] == [
        (7, {"a": 5, "b": 2}, None, None)
    ]
    listener.onQueryProgress(progress(('{"topic": {"0": 5}}', '{"topic": {"0": 7}}'), (None, None)))
    assert len(found) == 1


def test_the_line_of_a_lag(capfd: pytest.CaptureFixture[str]) -> None:
    """Name, or id; and only what is known."""
    LagListener().onQueryProgress(progress((text({A0: 4}), text({A0: 1004}))))
    assert "pocketmq: flow, micro-batch 7: behind by 1,000 rows\n" in capfd.readouterr().err
    whole = str(Lag("q", "", 3, 2, {}, 2048, 61.25))
    assert whole == "q, micro-batch 3: behind by 2 rows, about 2 KiB, 61.2 s"


def test_brokers_say_bytes_and_seconds(capfd: pytest.CaptureFixture[str]) -> None:
    """Rows by the mean size of the next records, and the age of the oldest; none where nothing is left."""
    with PocketBroker() as broker:

        async def fill() -> None:
            async with Admin(broker.namesrv) as admin:
                await admin.create_topic("a", queues=1)
            async with Producer(group="test", namesrv=broker.namesrv) as producer:
                await producer.send_batch([Message("a", b"x" * 1000) for _ in range(20)])

        asyncio.run(fill())
        found: list[Lag] = []
        listener = LagListener(found.append, namesrv=broker.namesrv)
        key = QueueKey("a", "pocket", 0)
        for read in (5, 20):
            listener.onQueryProgress(progress((text({key: read}), text({key: 20}))))
        behind, done = found
        assert behind.rows == 15
        assert behind.size_bytes is not None
        assert behind.seconds is not None
        assert 15 * 1000 < behind.size_bytes < 15 * 1400
        assert 0 <= behind.seconds < 3600
        assert (done.rows, done.size_bytes, done.seconds) == (0, 0, 0.0)
        listener.onQueryTerminated(SimpleNamespace())  # type: ignore[arg-type]
    listener = LagListener(found.append, namesrv="127.0.0.1:1")
    listener.onQueryProgress(progress((text({key: 5}), text({key: 20}))))
    assert (found[-1].rows, found[-1].size_bytes) == (15, None)
    assert "pocketmq: lag: " in capfd.readouterr().err
