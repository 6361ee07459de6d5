"""The lines of RocketMQ's benchmark programs, character by character, from counts that are known."""

import pytest

from bench.rocketmq.lines import ConsumeCounts, ConsumeWindow, SendCounts, SendWindow, human_time

NOW_S = 1_700_000_000.25


def filled(window: SendWindow | ConsumeWindow, act: object = None, seconds: int = 10) -> None:
    """Take a snapshot each second; ``act`` runs before each."""
    for second in range(seconds):
        if callable(act):
            act()
        window.snapshot(1000.0 + second)


def sent(form: str) -> SendWindow:
    """Return a window over 100 sends of 4 ms a second."""
    window = SendWindow(SendCounts(), form)

    def act() -> None:
        for _ in range(100):
            window.counts.took(4)

    filled(window, act)
    window.counts.took(31)
    window.counts.failed(answered=True)
    window.counts.failed(answered=False)
    return window


def test_the_producers_line_of_4_9() -> None:
    """Rate and average are those of the window, the longest time and the failures count from the start."""
    line = sent("4.9").line(NOW_S)
    expected = "Send TPS: 100 Max RT(ms): 31 Average RT(ms):   4.000 Send Failed: 0 Response Failed: 0"
    assert line == f"Current Time: {human_time(NOW_S)} {expected}"


def test_the_producers_line_of_5_3() -> None:
    """RocketMQ 5.3 separates the fields with bars."""
    line = sent("5.3").line(NOW_S)
    expected = "Send TPS: 100 | Max RT(ms): 31 | Average RT(ms):   4.000 | Send Failed: 0 | Response Failed: 0"
    assert line == f"Current Time: {human_time(NOW_S)} | {expected}"


def test_failures_show_with_the_next_snapshot() -> None:
    """One send failed on the way, one was refused; the window has slid: 800 sends of 4 ms and one of 31 ms in 9 s."""
    window = sent("5.3")
    window.snapshot(1010.0)
    assert window.line(NOW_S).endswith("| Send Failed: 1 | Response Failed: 1")
    assert window.complete() == (
        "[Complete] Send Total: 1002 | Send TPS: 89 | Max RT(ms): 31 | Average RT(ms):   4.034 | Send Failed: 1 | "
        "Response Failed: 1"
    )


def test_the_end_of_a_run_too_short_for_a_window() -> None:
    """With fewer than two snapshots RocketMQ leaves the rate out."""
    window = SendWindow(SendCounts(), "4.9")
    window.counts.took(1)
    assert window.complete() == "[Complete] Send Total: 1 Send Failed: 0 Response Failed: 0"


def test_the_line_of_batches() -> None:
    """Two batches of 16 a second, 8 ms each."""
    window = SendWindow(SendCounts(), "4.9", batch=True)

    def act() -> None:
        window.counts.took(8, 16)
        window.counts.took(8, 16)

    filled(window, act)
    assert window.line(NOW_S) == (
        f"Current Time: {human_time(NOW_S)} | Send TPS: 2 | Send MPS: 32 | Max RT(ms): 8 | Average RT(ms):   8.000 | "
        "Average Message RT(ms):   0.500 | Send Failed: 0 | Send Message Failed: 0"
    )


def test_nothing_sent_has_javas_average() -> None:
    """Java prints NaN when it divides zero by zero."""
    window = SendWindow(SendCounts(), "5.3")
    filled(window)
    assert "Average RT(ms):     NaN |" in window.line(NOW_S)


@pytest.mark.parametrize("form", ["4.9", "5.3"])
def test_the_consumers_line(form: str) -> None:
    """50 calls a second; each line restarts the longest times."""
    window = ConsumeWindow(ConsumeCounts(), form)

    def act() -> None:
        for _ in range(50):
            window.counts.took(6, 2)
        window.counts.failed += 1

    filled(window, act)
    rest = "AVG(B2C) RT(ms):   6.000", "AVG(S2C) RT(ms):   2.000", "MAX(B2C) RT(ms): 6", "MAX(S2C) RT(ms): 2"
    if form == "4.9":
        assert window.line(NOW_S) == " ".join([f"Current Time: {int(NOW_S * 1000)} TPS: 50", "FAIL: 9", *rest])
    else:
        first = f"Current Time: {human_time(NOW_S)} | Consume TPS: 50"
        assert window.line(NOW_S) == " | ".join([first, *rest, "Consume Fail: 9"])
    assert window.line(NOW_S).count("MAX(B2C) RT(ms): 0") == 1


def test_a_window_is_full_after_ten_snapshots_and_slides() -> None:
    """The eleventh snapshot pushes out the first."""
    window = SendWindow(SendCounts(), "5.3")
    filled(window, seconds=9)
    assert not window.full
    window.snapshot(1009.0)
    assert window.full
    window.counts.took(1)
    window.snapshot(1010.0)
    assert "Send TPS: 0 " in window.line(NOW_S)  # one in nine seconds, cut to a whole number


def test_the_time_is_readable_with_milliseconds() -> None:
    """The format is yyyy-MM-dd HH:mm:ss,SSS."""
    assert human_time(NOW_S).endswith(",250")
    assert len(human_time(NOW_S)) == len("2023-11-14 22:13:20,250")
