"""``--quota NAME=VALUE``."""

import pytest

from pocketmq.cli.admin.user_limits import FIELDS, limits_text, parse_limits
from pocketmq.common.errors import ConfigError
from pocketmq.remoting.limits.user_limits import UserLimits


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500", 500),
        ("0", 0),
        ("none", 0),
        ("default", -1),
        ("10K", 10_000),
        ("10KB", 10_000),
        ("10KiB", 10_240),
        ("2M", 2_000_000),
        ("2MiB", 2 << 20),
        ("1GiB", 1 << 30),
    ],
)
def test_values(text: str, number: int) -> None:
    assert parse_limits([f"bytes_in={text}"]) == {"bytes_in_per_second": number}


@pytest.mark.parametrize("text", ["", "bytes_in", "bytes_in=", "bytes=1", "topics=-1", "topics=1.5", "topics=1T"])
def test_what_is_no_limit_says_what_is(text: str) -> None:
    with pytest.raises(ConfigError, match="--quota"):
        parse_limits([text])


def test_every_limit_has_its_name_and_is_shown_by_it() -> None:
    assert tuple(FIELDS.values()) == UserLimits.__struct_fields__
    given = parse_limits(["bytes_in=10MiB", "topics=none"])
    assert limits_text(given) == "bytes_in=10485760 topics=none"
    assert limits_text(None) == ""
