"""Failed attempts of sends in a client's log."""

import asyncio
from typing import Any

import pytest

from pocketmq.client.errors import Attempt
from pocketmq.client.sender.attempt_log import KINDS_MAX, AttemptLog
from pocketmq.common.errors import Cause
from pocketmq.common.logs import CapturedLog

BUSY = "[REJECTREQUEST]system busy, start flow control for a while"


def attempt(broker: str = "broker-a", elapsed_ms: float = 1.0, **fields: Any) -> Attempt:
    values: dict[str, Any] = {
        "phase": "answer",
        "answer_code": 2,
        "answer": BUSY,
        "cause": Cause.PAGE_CACHE_BUSY,
    } | fields
    return Attempt(broker, "127.0.0.1:1", elapsed_ms=elapsed_ms, **values)


class ToldLog(CapturedLog):
    """Sets an event with each log line."""

    __slots__ = ("told",)

    def __init__(self) -> None:
        super().__init__()
        self.told = asyncio.Event()

    def info(self, event: str, **values: Any) -> None:
        super().info(event, **values)
        self.told.set()


async def test_attempts_are_counted_by_broker_and_answer() -> None:
    """Messages, retried ones, ended ones and the longest wait; once logged they are cleared."""
    log = CapturedLog()
    attempts = AttemptLog("group", log)
    attempts.note(attempt(elapsed_ms=3.0), 5, again=True)
    attempts.note(attempt(elapsed_ms=9.0), 2, again=False)
    attempts.note(attempt(phase="send", answer_code=-1, answer="no answer", cause=None), 1, again=False)
    assert log.events == [], "nothing is written on the way of a send"
    attempts.report()
    refused, lost = log.events
    assert refused["event"] == "send_attempts"
    assert (refused["count"], refused["again"], refused["ended"], refused["longest_ms"]) == (7, 5, 2, 9.0)
    assert (refused["tag"], refused["cause"], refused["code"]) == ("REJECTREQUEST", "page_cache_busy", 2)
    assert (lost["phase"], lost["cause"], lost["tag"]) == ("send", "", "")
    assert [event["text"] for event in log.events] == [
        f"sendKernelImpl exception, resend at once, InvokeID: 1, RT: 9ms, Broker: broker-a, CODE: 2  DESC: {BUSY}",
        "sendKernelImpl exception, resend at once, InvokeID: 2, RT: 1ms, Broker: broker-a, no answer",
    ]
    assert {event["level"] for event in log.events} == {"info"}
    attempts.report()
    assert len(log.events) == 2


async def test_kinds_are_bounded() -> None:
    """A thousand brokers make a few lines, which cover every message."""
    log = CapturedLog()
    attempts = AttemptLog("group", log)
    for number in range(1000):
        attempts.note(attempt(f"broker-{number}", answer="x" * 10_000), 1, again=False)
    attempts.report()
    assert len(log.events) == KINDS_MAX + 1
    assert sum(event["count"] for event in log.events) == 1000
    assert max(len(event["answer"]) for event in log.events) <= 300


async def test_it_tells_by_itself_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first failure sets the timer, and a report resets it."""
    log = ToldLog()
    attempts = AttemptLog("group", log)
    monkeypatch.setattr("pocketmq.client.sender.attempt_log.INTERVAL_S", 0.005)
    attempts.note(attempt(), 1, again=True)
    attempts.note(attempt(), 1, again=True)
    async with asyncio.timeout(60):
        await log.told.wait()
    assert [event["count"] for event in log.events] == [2]
