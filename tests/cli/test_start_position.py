"""The values of ``--from``."""

import pytest

from pocketmq.cli.start_position import parse_duration, parse_start, parse_time
from pocketmq.common.errors import ConfigError

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("committed", "committed"),
        ("1699999999999", 1_699_999_999_999),
        ("15m", NOW_MS - 900_000),
        ("2h", NOW_MS - 7_200_000),
        ("500ms", NOW_MS - 500),
        ("99999d", 0),
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("2023-11-14T22:13:20", NOW_MS),
        ("2023-11-14T23:13:20+01:00", NOW_MS),
    ],
)
def test_words_times_and_how_long_ago(text: str, position: str | int) -> None:
    assert parse_start(text, NOW_MS) == position


@pytest.mark.parametrize("text", ["", "now", "-1", "5 m", "5x", "2023-13-01", "Earliest", "9" * 23])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="bad position"):
        parse_start(text, NOW_MS)


def test_delays_and_times_of_delivery() -> None:
    """Whole ms; a time between two ms is rounded up, so that no message is early."""
    assert [parse_duration("--delay", text) for text in ("500ms", "30s", "15m", "2h", "3d")] == [
        500,
        30_000,
        900_000,
        7_200_000,
        259_200_000,
    ]
    assert parse_time("2023-11-14T22:13:20Z") == parse_time(str(NOW_MS)) == NOW_MS
    assert parse_time("2023-11-14T22:13:20.000001Z") == NOW_MS + 1


@pytest.mark.parametrize("text", ["", "5", "-5s", "1.5s", "soon", "9999999999999s"])
def test_other_delays_are_refused(text: str) -> None:
    """The error has the valid forms."""
    with pytest.raises(ConfigError, match="write 500ms"):
        parse_duration("--delay", text)


@pytest.mark.parametrize("text", ["", "15m", "1969-12-31T00:00:00Z", "tomorrow", "1" * 16])
def test_other_times_of_delivery_are_refused(text: str) -> None:
    """The error has the valid forms."""
    with pytest.raises(ConfigError, match="bad time"):
        parse_time(text)
