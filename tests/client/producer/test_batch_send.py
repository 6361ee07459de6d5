"""Batches and Arrow rows on their way into sections."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.arrow.arrow_records import read_rows
from pocketmq.client.message.identified_message import IdentifiedMessage
from pocketmq.client.message.request_message import RequestMessage
from pocketmq.client.message.validation import MAX_MESSAGE_SIZE
from pocketmq.client.producer.batch_send import ALIKE_MIN, BatchSend
from pocketmq.client.producer.pending_send import SendHooks
from pocketmq.client.producer.producer_options import ProducerOptions
from pocketmq.client.producer.selectors import select_by_hash
from pocketmq.client.producer.submission import Submission
from pocketmq.client.sender.in_flight import InFlight
from pocketmq.client.sender.queue_choice import QueueChooser
from pocketmq.client.sender.section import FRAME_BYTES_TARGET, UNBUILT_EXTRA_BYTES
from pocketmq.common.errors import MessageIllegal, PocketMQError
from pocketmq.common.message import Message
from pocketmq.remoting.errors import RemotingTooMuchRequestError
from tests.client.producer.producer_fakes import QUEUES, FakeInstance, FakeSender, route_of


class World:
    """The batches of a producer with a known route; each section is answered at once with the names of its queue."""

    def __init__(self) -> None:
        self.instance = instance = FakeInstance()
        instance.know(route_of())
        self.sender = FakeSender()
        self.in_flight = InFlight(1 << 20)
        chooser = QueueChooser(instance.clock, random.Random(1), None)
        sender: Any = self.sender
        hooks = SendHooks(MAX_MESSAGE_SIZE)
        submission = Submission(instance, ProducerOptions(), self.in_flight, chooser, sender, hooks)
        submission.begin()
        self.batches = BatchSend(
            submission.sections, chooser, self.in_flight, 3, MAX_MESSAGE_SIZE, submission.is_simple, MAX_MESSAGE_SIZE
        )

    async def send(self, *messages: Message, timeout_ms: int = 3000) -> list[Any]:
        return list(await self.batches.send(messages, self.batches.group(messages), timeout_ms))

    async def send_rows(self, timeout_ms: int = 3000, **columns: list[Any]) -> list[Any]:
        rows = read_rows(pa.RecordBatch.from_pydict(columns), "T", MAX_MESSAGE_SIZE)
        return list(await self.batches.send_rows(rows, timeout_ms))


async def test_messages_without_a_key_travel_in_one_section() -> None:
    """The section may go to any queue, counts as one send, and has the attempts of ``send``."""
    world = World()
    receipts = await world.send(Message("T", b"1"), Message("T", b"2", tags="t"))
    (section,) = world.sender.sections
    assert [message.body for message in section.messages] == [b"1", b"2"]
    assert (section.may_move, section.plain, section.wait, section.attempts_max) == (True, True, True, 3)
    assert (section.permits, len(set(section.uniq_keys))) == (1, 2)
    assert world.in_flight.sends == 1  # the sender ends it
    assert len(receipts) == 2


async def test_messages_with_a_key_stay_at_its_queue_and_in_order() -> None:
    """One section for each queue, and the receipts are in the order of the batch."""
    world = World()
    keys = ["k1", "k2", "", "k1", "k3", "k2"]
    receipts = await world.send(*[Message("T", b"%d" % at, sharding_key=key) for at, key in enumerate(keys)])
    queues = [select_by_hash(key, QUEUES) if key else None for key in keys]
    for at, (queue, receipt) in enumerate(zip(queues, receipts, strict=True)):
        (section,) = [each for each in world.sender.sections if b"%d" % at in [m.body for m in each.messages]]
        assert section.may_move == (queue is None)
        if queue is not None:
            assert section.queue == queue
        assert receipt == f"{section.queue.broker_name}{section.queue_id}"
    for section in world.sender.sections:
        bodies = [message.body for message in section.messages]
        assert bodies == sorted(bodies)


async def test_a_batch_larger_than_a_frame_is_cut_into_parts() -> None:
    """Each part has a section, none larger than a frame."""
    world = World()
    world.in_flight.bytes_max = 1 << 30
    body = bytes(FRAME_BYTES_TARGET // 3)
    await world.send(*[Message("T", body)] * 5)
    assert [section.count for section in world.sender.sections] == [2, 2, 1]
    assert 2 * (len(body) + UNBUILT_EXTRA_BYTES) <= FRAME_BYTES_TARGET


TOPIC, TAGS = "Topic-of-all", "tags-of-all"
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "body": st.sampled_from([b"", b"x", bytearray(b"x"), bytes(MAX_MESSAGE_SIZE + 1)]),
        "tags": st.sampled_from(["", "other", None]),
        "keys": st.sampled_from([(), [], "k", ["k"]]),
        "properties": st.sampled_from([None, {}, {"a": "b"}]),
        "flag": st.sampled_from([0, 1]),
        "wait_store_msg_ok": st.sampled_from([True, False, 1]),
        "sharding_key": st.sampled_from([None, "", "s"]),
        "delay_time_level": st.sampled_from([0, 2]),
        "delay_time_ms": st.sampled_from([None, 5]),
        "deliver_time_ms": st.sampled_from([None, 5]),
    },
)


@given(st.lists(FIELDS | st.just({}), min_size=1, max_size=6))
def test_messages_that_share_topic_and_tags_are_checked_like_all_others(fields: list[dict[str, Any]]) -> None:
    """Whatever field one of them has besides: groups and errors are those of messages with strings of their own."""
    made = [{"body": b"body", "tags": TAGS, **each} for each in [{}, *fields, {}]]

    def own(text: Any) -> Any:
        return "".join(list(text)) if text else text

    async def grouped(text: Callable[[Any], Any]) -> Any:
        batch = [Message(text(TOPIC), **{**each, "tags": text(each["tags"])}) for each in made]
        try:
            return World().batches.group(batch)
        except PocketMQError as error:
            return str(error)

    assert asyncio.run(grouped(lambda text: text)) == asyncio.run(grouped(own))


async def test_only_messages_of_one_kind_share_a_section() -> None:
    """Topics that a plain record cannot carry and messages that do not wait for the disk travel separately."""
    world = World()
    await world.send(
        Message("T", b"1"), Message("T", b"2", wait_store_msg_ok=False), Message("T", b"3", properties={"a": "b"})
    )
    assert [(section.count, section.wait) for section in world.sender.sections] == [(2, True), (1, False)]


@pytest.mark.parametrize(("count", "alike"), [(ALIKE_MIN, True), (ALIKE_MIN - 1, False)])
async def test_many_messages_that_are_alike_share_their_tags(count: int, alike: bool) -> None:
    """Their ids are then made together; with fewer messages, or a different one, each is built separately."""
    world = World()
    await world.send(*[Message("T", b"x", tags="t")] * count)
    await world.send(*[Message("T", b"x", tags="t")] * count, Message("T", b"x", keys="k"))
    first, second = world.sender.sections
    assert (first.alike, first.ids is not None) == ("t" if alike else None, alike)
    assert (second.alike, second.ids) == (None, None)


async def test_an_id_of_the_applications_choice_stays() -> None:
    """This holds in a batch as well."""
    world = World()
    await world.send(IdentifiedMessage("T", b"1", msg_id="A" * 32), Message("T", b"2"))
    (section,) = world.sender.sections
    assert section.uniq_keys[0] == b"A" * 32


async def test_what_no_batch_may_hold_is_named() -> None:
    """The error has its place and the reason; no message is sent."""
    world = World()
    request = RequestMessage(Message("T", b"x"), "T", {})
    for message, why in (
        (Message("T", b"x", delay_time_level=1), "message 1 is delayed"),
        (Message("T", b"x", delay_time_ms=1), "message 1 is delayed"),
        (request, "message 1 is a RequestMessage"),
    ):
        with pytest.raises(MessageIllegal, match=why):
            world.batches.group([Message("T", b"1"), message])
    assert not world.sender.sections


async def test_a_part_waits_for_room() -> None:
    """It waits for its timeout, then raises the error that there is no room."""
    world = World()
    world.in_flight.add(1 << 20, 1, False)
    with pytest.raises(RemotingTooMuchRequestError):
        await world.send(Message("T", b"1"), timeout_ms=1)
    with pytest.raises(RemotingTooMuchRequestError):
        await world.send_rows(1, body=[b"1"])
    assert not world.sender.sections


async def test_the_error_of_a_part_is_raised() -> None:
    """It is raised after all parts have ended."""
    world = World()
    world.sender.answer = error = PocketMQError("refused")
    with pytest.raises(PocketMQError) as caught:
        await world.send(Message("T", b"1", sharding_key="k1"), Message("T", b"2"))
    assert caught.value is error
    assert len(world.sender.sections) == 2


async def test_rows_go_the_same_way() -> None:
    """Rows with a key go to its queue, others to any; each has an id, and receipts are in row order."""
    world = World()
    receipts = await world.send_rows(body=[b"1", b"2", b"3"], sharding_key=["k", None, "k"])
    free, keyed = sorted(world.sender.sections, key=lambda section: section.may_move, reverse=True)
    assert (free.may_move, free.count, keyed.may_move, keyed.count) == (True, 1, False, 2)
    assert keyed.queue == select_by_hash("k", QUEUES)
    assert keyed.rows is not None
    assert [message.body for message in keyed.rows.messages()] == [b"1", b"3"]
    assert len({*free.all_ids, *keyed.all_ids}) == 3
    assert receipts[0] == receipts[2] == f"{keyed.queue.broker_name}{keyed.queue_id}"
