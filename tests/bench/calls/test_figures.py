"""How counts of windows become calls per message."""

import pytest

from bench.calls.figures import BACKGROUND, LOOP, OTHER, SEND_THREAD, Figures, per_message


def test_idle_calls_are_subtracted_and_timers_left_out() -> None:
    """Per message, by the group of the thread."""
    busy = {"MainThread": {"a": 110}, "SendMessageThread": {"b": 50}, "retention": {"c": 900}, "new": {"d": 20}}
    idle = {"MainThread": {"a": 10, "e": 5}, "retention": {"c": 100}}
    assert per_message(busy, idle, 10) == {LOOP: {"a": 10.0, "e": -0.5}, SEND_THREAD: {"b": 5.0}, OTHER: {"d": 2.0}}


def test_ticks_that_a_busy_loop_missed_are_not_subtracted() -> None:
    """The timer's function says how many took place."""
    busy = {"MainThread": {"tick": 30, "len": 30, "message": 100}}
    idle = {"MainThread": {"tick": 40, "len": 40}}
    for longer in (1.0, 3.0):
        assert per_message(busy, idle, 10, longer) == {LOOP: {"tick": 0.0, "len": 0.0, "message": 10.0}}


def test_idle_calls_count_by_the_length_of_the_windows() -> None:
    """A function that messages call as well says nothing of the ticks."""
    busy, idle = {"MainThread": {"a": 100}}, {"MainThread": {"a": 10}}
    assert per_message(busy, idle, 10, 2.0) == {LOOP: {"a": 8.0}}


def test_a_figure_is_the_median_of_the_windows() -> None:
    """What one window alone has counts in none."""
    usual = {LOOP: {"a": 3.0, "b": 1.0}, BACKGROUND: {"c": 2.0}}
    burst = {LOOP: {"a": 3.0, "b": 1.0, "rare": 50.0}, BACKGROUND: {"c": 9.0}}
    figures = Figures([usual, burst, usual])
    assert figures.of(LOOP) == figures.path == 4.0
    assert figures.total == 6.0
    assert figures.top(2) == [(LOOP, "a", 3.0), (BACKGROUND, "c", 2.0)]


@pytest.mark.parametrize(("name", "group"), [("PullMessageThread-3", "pull thread"), ("key-index", BACKGROUND)])
def test_threads_are_grouped_by_name(name: str, group: str) -> None:
    """Numbered ones, and those behind the messages."""
    assert per_message({name: {"a": 1}}, {}, 1) == {group: {"a": 1.0}}
