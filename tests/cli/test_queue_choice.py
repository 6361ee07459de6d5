"""Commands that follow a topic wait until it exists."""

from typing import Any, cast

import pytest

from pocketmq.cli import queue_choice
from pocketmq.cli.queue_choice import wait_for_topic
from pocketmq.client import NoRoute


class Consumer:
    """Knows the topic after some questions."""

    def __init__(self, unknown_times: int) -> None:
        self.unknown_times = unknown_times
        self.asked = 0

    async def queues(self, topic: str) -> list[object]:
        self.asked += 1
        if self.asked <= self.unknown_times:
            raise NoRoute(f"No route info of this topic: {topic}", why="the name server does not know it")
        return []


@pytest.mark.parametrize("unknown_times", [0, 1, 3])
async def test_it_asks_until_the_topic_is_there(unknown_times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says once what it waits for."""
    monkeypatch.setattr(queue_choice, "RETRY_S", 0)
    said: list[str] = []
    monkeypatch.setattr(queue_choice, "print_progress", said.append)
    consumer = Consumer(unknown_times)
    assert await wait_for_topic(cast("Any", consumer), "News") == bool(unknown_times)
    assert consumer.asked == unknown_times + 1
    assert said == ["waiting for topic News: the name server does not know it"][:unknown_times]
