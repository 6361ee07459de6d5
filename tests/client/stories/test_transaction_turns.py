"""Decisions of one loop turn: one request for each broker, and its answers to the right ones."""

import asyncio
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.message.transaction_message import HalfMessage, LocalTransactionState
from pocketmq.client.transaction.transaction_end import ENDS_MAX, End, EndSender
from pocketmq.common.message import Message
from pocketmq.remoting.codec import Response
from pocketmq.remoting.protocol.transaction import NativeEndTransactionResponseHeader

COMMIT = LocalTransactionState.COMMIT_MESSAGE


class Broker:
    """A connection that answers each decision with its queue offset as remark."""

    def __init__(self) -> None:
        self.requests: list[tuple[list[Any], int]] = []
        self.closed = False

    def request_nowait(self, code: int, header: Any, body: bytes, *, timeout_ms: int, done: Any) -> None:
        self.requests.append((list(header.ends), timeout_ms))
        results = [(0, str(end[0])) for end in header.ends]
        answer = Response(0, 1, "", NativeEndTransactionResponseHeader(results), b"", 1, {}, 0)
        asyncio.get_running_loop().call_soon(done, answer)


class Instance:
    """Knows two brokers; counts its look-ups."""

    def __init__(self) -> None:
        self.brokers = {"a": Broker(), "b": Broker()}
        self.asked = 0

    def open_connection(self, name: str) -> Any:
        self.asked += 1
        announcement = SimpleNamespace(transactions=1)
        return SimpleNamespace(broker_name=name, address=name, channel=self.brokers[name], announcement=announcement)


async def test_one_request_a_broker_and_turn() -> None:
    """In any order, each decision goes to its own broker, with the shortest wait, and gets its own answer."""
    instance: Any = Instance()
    ends = EndSender(instance, "g")
    for turn in range(2):
        places = [(name, offset) for offset in range(50) for name in "ab"]
        futures = [
            ends.end_nowait(name, End(offset, offset, COMMIT, "id"), 100 + (offset + 7) % 50) for name, offset in places
        ]
        answers = [await future for future in futures if future is not None]
        assert answers == [(0, str(offset)) for _, offset in places]
        for broker in instance.brokers.values():
            assert len(broker.requests) == turn + 1
            sent, timeout_ms = broker.requests[turn]
            assert [end[0] for end in sent] == list(range(50))
            assert timeout_ms == 100
        assert instance.asked == 2 * (turn + 1)


async def test_a_turn_of_very_many_is_cut() -> None:
    """No request exceeds its limit, and no decision is lost."""
    instance: Any = Instance()
    ends = EndSender(instance, "g")
    futures = [ends.end_nowait("a", End(offset, 0, COMMIT, "id"), 100) for offset in range(ENDS_MAX + 10)]
    answers = [await future for future in futures if future is not None]
    assert answers == [(0, str(offset)) for offset in range(ENDS_MAX + 10)]
    assert [len(sent) for sent, _ in instance.brokers["a"].requests] == [ENDS_MAX, 10]
    assert ends.sent == ENDS_MAX + 10


@given(
    st.builds(
        Message,
        st.text(max_size=3),
        st.binary(max_size=3),
        tags=st.text(max_size=2),
        keys=st.lists(st.text(max_size=2), max_size=2),
        properties=st.none() | st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2),
        flag=st.integers(0, 3),
        wait_store_msg_ok=st.booleans(),
        sharding_key=st.none() | st.text(max_size=2),
    )
)
def test_a_half_message_is_a_copy(message: Message) -> None:
    """It has every field of a message, including fields added later."""
    half = HalfMessage(message, "g")
    for name in Message.__slots__:
        assert getattr(half, name) == getattr(message, name), name
