"""Half messages: copies of the user's messages."""

import pytest

from pocketmq.client.message.transaction_message import HalfMessage
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.message import Message


def test_a_half_message_is_a_copy_with_a_group() -> None:
    """It has all fields of the message except a delay, and its group."""
    message = Message(
        "T", b"x", tags="t", keys=("k",), properties={"p": "q"}, flag=3, wait_store_msg_ok=False, sharding_key="s"
    )
    half = HalfMessage(message, "g", 30)
    properties = half.property_map("ID")
    own = {"TRAN_MSG": "true", "PGROUP": "g", "CHECK_IMMUNITY_TIME_IN_SECONDS": "30"}
    assert properties == {**message.property_map("ID"), **own}
    assert (half.topic, half.body, half.flag, half.msg_id) == ("T", b"x", 3, "")


@pytest.mark.parametrize("delay", [{"delay_time_level": 1}, {"delay_time_ms": 1}, {"deliver_time_ms": 1}])
def test_a_delayed_message_is_no_half(delay: dict[str, int]) -> None:
    """A transaction cannot contain it."""
    with pytest.raises(MessageIllegal, match="delayed"):
        HalfMessage(Message("T", b"x", **delay), "g")  # type: ignore[arg-type]
