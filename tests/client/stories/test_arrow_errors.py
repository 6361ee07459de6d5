"""Errors in the middle of an Arrow poll skip no message."""

from typing import Any

import pytest

from pocketmq.client import Message, Producer, PullConsumer
from pocketmq.common.body_codec import BodyUnreadable


@pytest.mark.parametrize("failing", [1, 2])
async def test_rows_before_an_error_are_returned_and_none_is_skipped(
    broker: Any, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The first round's rows were once dropped with the second's error, and the position was behind them."""
    topic = f"ArrowErrors{failing}"
    async with Producer("p", namesrv=broker.namesrv) as producer:
        for number in range(4):
            await producer.send(Message(topic, b"%d" % number))
    async with PullConsumer("arrow-errors", namesrv=broker.namesrv) as consumer:
        await consumer.seek(topic, "earliest")
        real, calls = consumer._round, 0

        async def fail(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == failing:
                raise BodyUnreadable("bodies not unpacked", why="a bomb")
            return await real(*arguments)

        monkeypatch.setattr(consumer, "_round", fail)
        rows: list[bytes] = []
        errors = 0
        while len(rows) < 4:
            try:
                batch = await consumer.poll_arrow(topic, max_messages=100)
            except BodyUnreadable:
                errors += 1
                assert errors < 3
                continue
            rows += [bytes(body) for body in batch.column("body").to_pylist() if body is not None]
        assert sorted(rows) == [b"0", b"1", b"2", b"3"]
        assert errors == (1 if failing == 1 else 0)
