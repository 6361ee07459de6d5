"""A soak's verdict: growth is found under noise, and peaks are no growth."""

import random

import pytest

from tests.soak.samples import Sample
from tests.soak.verdict import MIB, growths, lowest, slope, table

MINUTES = 30


def run(rss_bytes_a_minute: float = 0.0, tasks_a_minute: float = 0.0, log_bytes_a_minute: float = 0.0) -> list[Sample]:
    """Return a run with a sawtooth of three MiB, peaks of tasks, and this growth."""
    rng = random.Random(7)
    found = []
    for number in range(MINUTES * 6):
        minute = number / 6
        rss = 100 * MIB + number % 5 * MIB * 3 // 5 + round(minute * rss_bytes_a_minute)
        tasks = 40 + rng.choice((0, 0, 3, 9)) + int(minute * tasks_a_minute)
        found.append(Sample("a", number * 10.0, rss, rss, rss, 30, 12, tasks, round(minute * log_bytes_a_minute), -1))
    return found


def test_peaks_and_a_sawtooth_are_flat() -> None:
    found = list(growths(run(), 300.0))
    assert {each.field for each in found} == {"rss_bytes", "descriptors", "threads", "tasks", "log_bytes"}
    assert all(each.is_flat for each in found), list(table(found))


@pytest.mark.parametrize(
    ("field", "samples"),
    [
        ("rss_bytes", run(rss_bytes_a_minute=MIB / 8)),
        ("tasks", run(tasks_a_minute=0.2)),
        ("log_bytes", run(log_bytes_a_minute=MIB / 8)),
    ],
)
def test_what_grows_is_found_and_named(field: str, samples: list[Sample]) -> None:
    found = list(growths(samples, 300.0))
    assert [each.field for each in found if not each.is_flat] == [field]
    assert sum("GROWS" in line for line in table(found)) == 1


def test_growth_during_the_warm_up_does_not_count() -> None:
    warm = run(rss_bytes_a_minute=MIB)[:60]
    flat = [Sample("a", 600 + each.at_s, *each_values(each)) for each in run()]
    assert all(each.is_flat for each in growths([*warm, *flat], 600.0))


def each_values(sample: Sample) -> tuple[int, int, int, int, int, int, int, int]:
    """Return the values after the time."""
    return (
        *(sample.rss_bytes, sample.pss_bytes, sample.anon_bytes, sample.descriptors),
        *(sample.threads, sample.tasks, sample.log_bytes, sample.disk_bytes),
    )


def test_one_odd_minute_does_not_move_the_slope() -> None:
    points = [(60.0 * minute, 5.0) for minute in range(20)]
    assert slope([*points, (1200.0, 1e9)]) == 0
    assert slope([]) == slope(points[:1]) == 0
    assert lowest([(0.0, 5.0), (10.0, 3.0), (70.0, 9.0)]) == [(10.0, 3.0), (70.0, 9.0)]
