"""Records that are built together are those that are built one by one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.message import Message
from pocketmq.common.message_id import UniqueIdGenerator
from pocketmq.common.plain_batch import build_alike
from pocketmq.common.record_codec import PlainRecordBuilder


@given(
    st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=40),
    st.sampled_from(["", "A", "tag-\u00f6"]),
    st.sampled_from([4, 6]),
    st.integers(0, 1 << 30),
)
def test_together_as_one_by_one(bodies: list[bytes], tags: str, family: int, queue_id: int) -> None:
    """Byte for byte, with and without tags, in both host families."""
    builder = PlainRecordBuilder("cluster", family)
    ids = UniqueIdGenerator(ManualClock(), pid=1, instance=2).next_rows(len(bodies))
    expected = [
        builder.build(Message("Topic", body, tags=tags), queue_id, key.tobytes(), 77)
        for body, key in zip(bodies, ids, strict=True)
    ]
    sizes, data = build_alike(builder, "Topic", tags, bodies, queue_id, ids, 77)
    assert data == b"".join(expected)
    assert sizes.tolist() == [len(record) for record in expected]


@pytest.mark.parametrize(("topic", "tags"), [("T" * 128, ""), ("T", "a\x01b")])
def test_what_one_record_refuses_all_refuse(topic: str, tags: str) -> None:
    """A long topic, a separator in the tags."""
    ids: Any = np.zeros((1, 32), np.uint8)
    with pytest.raises(MessageIllegal):
        build_alike(PlainRecordBuilder("cluster"), topic, tags, [b"x"], 0, ids, 1)
