"""The list of deleted topics: its bound."""

from typing import Any

import pytest

from pocketmq.store.consumequeue import deleted_topics
from pocketmq.store.consumequeue.deleted_topics import DeletedTopics
from pocketmq.store.errors import StoreFull


class Kept:
    """A file system that takes everything."""

    def replace(self, path: str, data: bytes, *, durable: bool) -> None:
        """Take it."""


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full table refuses other topics, moves those it has, and has room after retention."""
    monkeypatch.setattr(deleted_topics, "TOPICS_MAX", 3)
    files: Any = Kept()
    deleted = DeletedTopics(files, "deleted")
    for number in range(3):
        deleted.add(f"t{number}", 100 + number)
    with pytest.raises(StoreFull, match="3 topics were deleted"):
        deleted.add("t3", 200)
    deleted.add("t0", 300)
    assert deleted.table() == {"t0": 300, "t1": 101, "t2": 102}
    deleted.forget_below(101)
    deleted.add("t3", 400)
    assert deleted.table() == {"t0": 300, "t2": 102, "t3": 400}
