"""Spark's errors, explained in one sentence."""

import pytest

from pocketmq.pipeline.jobs.common.session import explanation

STREAM = """[STREAM_FAILED] Query terminated with exception: Return Message: Traceback (most recent call last):
  File "x.py", line 644, in call
    return_value = f()
RuntimeError: cut off
 at java.lang.Thread.run"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (STREAM, "RuntimeError: cut off"),
        ('[X] failed\nTraceback (most recent call last):\n  File "x.py"\nValueError: no', "ValueError: no"),
        ("\n[Y] plain\n at java", "[Y] plain"),
    ],
)
def test_the_reason_is_the_last_line_of_pythons_traceback(text: str, why: str) -> None:
    """Without a traceback it is Spark's first line."""
    assert explanation(text).why == why
