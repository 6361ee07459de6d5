"""What ``--from`` may say."""

import pytest

from pocketmq.cli.start_position import parse_start
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
