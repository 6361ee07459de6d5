"""Answers of handlers, settings of consumers, statistics of the last minute."""

from typing import Any

import pytest

from pocketmq.client.handlers.consume_result import (
    DONE,
    ConsumeResult,
    DeadLetter,
    DropFailed,
    KeepHere,
    Later,
    is_answer,
    outcome_of,
)
from pocketmq.client.handlers.consumer_statistics import ConsumerStatistics, Rates
from pocketmq.client.handlers.process_queue import LIMIT_MAX, ProcessLimits
from pocketmq.client.push.consumer_options import ConsumerOptions
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import ConfigError
from tests.client.consume_fakes import FakeMessage


def test_outcomes() -> None:
    """The meaning of each answer; another value is no answer, and means done."""
    messages: Any = [FakeMessage(0), FakeMessage(1)]
    for done in (None, True, ConsumeResult.SUCCESS, 5, "ok", 0):
        assert outcome_of(done, messages) is DONE
    answers: list[Any] = [None, True, False, Later(), ConsumeResult.LATER, 0, 1, "LATER", []]
    assert [is_answer(each) for each in answers] == [
        True, True, True, True, True, False, False, False, False,
    ]  # fmt: skip
    assert outcome_of(False, messages).later == messages
    some = outcome_of(Later(messages=[messages[1]], delay_level=4, suspend_ms=50), messages)
    assert (list(some.later), some.delay_level, some.suspend_ms) == ([messages[1]], 4, 50)
    stranger: Any = FakeMessage(7)
    assert list(outcome_of(Later(messages=[stranger]), messages).later) == []


@pytest.mark.parametrize(
    "wrong",
    [{"delay_level": -2}, {"delay_level": 65}, {"delay_level": "3"}, {"suspend_ms": -1}, {"suspend_ms": 30_001}],
)
def test_a_later_that_cannot_be(wrong: Any) -> None:
    """The error is raised where the answer is made: in the handler."""
    with pytest.raises(ConfigError):
        Later(**wrong)


async def test_policies_without_a_broker() -> None:
    """One keeps every message here, the other drops every message."""
    messages: Any = [FakeMessage(0)]
    assert list(await KeepHere().failed(messages, "", 0)) == messages
    assert list(await DropFailed().failed(messages, "", 0)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"message_model": "both"},
        {"concurrency": 0},
        {"pull_batch_size": 0},
        {"consume_timeout_ms": 0},
        {"max_reconsume_times": -2},
        {"suspend_current_queue_time_millis": 5},
        {"loop_block_ms": True},
    ],
)
def test_settings_that_cannot_be(wrong: Any) -> None:
    """The text names the setting."""
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ConsumerOptions(**wrong)


def test_limits_of_a_topic_are_shared_by_its_queues() -> None:
    """They replace the limits of a queue; ordered queues have no span."""
    limits = ProcessLimits(1000, 1 << 20, 2000, topic_count_max=100, topic_size_bytes_max=7)
    assert limits.shared_by(8) == ProcessLimits(12, 1, 2000)
    assert limits.shared_by(1000).count_max == 1
    assert ProcessLimits().shared_by(8) == ProcessLimits()
    assert ProcessLimits().shared_by(8, ordered=True).span_max == LIMIT_MAX
    for wrong in ({"count_max": 0}, {"topic_count_max": 0}, {"size_bytes_max": -1}):
        with pytest.raises(ConfigError):
            ProcessLimits(**wrong)


def test_rates_are_those_of_the_last_minute() -> None:
    """Older calls do not count, except in the number of failures."""
    clock = ManualClock()
    statistics = ConsumerStatistics(clock)
    assert statistics.rates("T") == Rates()
    counts = statistics.counts("T")
    counts.ok, counts.failed, counts.handler_ns, counts.pulls, counts.pulled, counts.pull_ns = (
        90, 10, 200_000_000, 4, 100, 8_000_000,
    )  # fmt: skip
    clock.advance_ms(10_000)
    statistics.sample()
    assert statistics.rates("T") == Rates(2.0, 10.0, 2.0, 9.0, 1.0, 10)
    for _ in range(120):
        clock.advance_ms(1000)
        statistics.sample()
    assert statistics.rates("T") == Rates(failed_count=10)
    assert len(statistics._samples["T"]) <= 62


def test_a_dead_letter_is_named_and_says_why() -> None:
    """It is the answer ``Later(delay_level=-1)``; without a reason the text says who gave the message up."""
    messages: Any = [FakeMessage(0), FakeMessage(1)]
    assert is_answer(DeadLetter())
    given_up = outcome_of(DeadLetter("no such account", [messages[1]]), messages)
    assert (list(given_up.later), given_up.delay_level, given_up.reason) == ([messages[1]], -1, "no such account")
    assert outcome_of(DeadLetter(), messages).reason == "the handler gave it up"
    with pytest.raises(ConfigError):
        DeadLetter(7)  # type: ignore[arg-type]
