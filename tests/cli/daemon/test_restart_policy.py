"""Pauses between the lives of a process; the test holds the clock."""

from pocketmq.cli.daemon.restart_policy import FAILED_STARTS_MAX, PAUSE_MS_MAX, STEADY_MS, RestartPolicy


def test_pauses_grow_to_their_maximum() -> None:
    policy, now_ms, pauses = RestartPolicy(), 0, []
    for _ in range(9):
        policy.ready(now_ms)
        now_ms += 10
        pauses.append(policy.ended(now_ms))
    assert pauses == [500, 1000, 2000, 4000, 8000, 16_000, PAUSE_MS_MAX, PAUSE_MS_MAX, PAUSE_MS_MAX]
    assert policy.restarts == 9


def test_a_process_that_served_long_begins_with_the_shortest_pause() -> None:
    policy = RestartPolicy()
    for now_ms in (0, 1, 2):
        policy.ready(now_ms)
        policy.ended(now_ms)
    policy.ready(10)
    assert policy.ended(10 + STEADY_MS - 1) == 4000
    policy.ready(20)
    assert policy.ended(20 + STEADY_MS) == 500


def test_starts_that_fail_in_a_row_end_it() -> None:
    policy = RestartPolicy()
    policy.ready(0)
    pauses = [policy.ended(1) for _ in range(FAILED_STARTS_MAX + 1)]
    assert pauses == [500, 1000, 2000, 4000, 8000, None]


def test_one_start_that_serves_forgives_those_that_failed() -> None:
    policy = RestartPolicy()
    for round_number in range(3):
        for _ in range(FAILED_STARTS_MAX - 1):
            assert policy.ended(round_number) is not None
        policy.ready(round_number)
        assert policy.ended(round_number) is not None


def test_a_process_that_serves_and_dies_at_once_is_restarted_for_ever() -> None:
    policy = RestartPolicy()
    for now_ms in range(1000):
        policy.ready(now_ms)
        assert policy.ended(now_ms) is not None
