"""A process that ends with its parent: once, when the pipe has no writer any more."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from pocketmq.cli.daemon.bound_to_parent import end_with_parent


@pytest.fixture
def signals() -> Iterator[list[int]]:
    """The numbers of the SIGTERMs that came."""
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    yield came
    signal.signal(signal.SIGTERM, before)


def test_the_end_of_the_pipe_is_one_signal(signals: list[int]) -> None:
    reader, writer = os.pipe()
    end_with_parent(reader)
    (watch,) = [each for each in threading.enumerate() if each.name == "parent-watch"]
    os.write(writer, b"what a parent writes is no end")
    assert watch.is_alive()
    assert signals == []
    os.close(writer)
    watch.join(30)
    assert not watch.is_alive()
    assert signals == [signal.SIGTERM]
    os.close(reader)
