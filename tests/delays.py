"""Delay levels that are over soon: the shortest that the setting can say is a second."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from pocketmq.common import redelivery

ALL_ONE_SECOND: Final = {"message_delay_level": " ".join(["1s"] * 18)}
"""A setting of the store: every level is a second."""


@contextmanager
def short_seconds() -> Iterator[None]:
    """Let stores that open in this block take 50 ms for a second of a delay level."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(redelivery._UNITS_MS, "s", 50)
        yield
