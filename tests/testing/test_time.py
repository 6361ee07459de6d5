"""Idle groups, time that a test moves, and the fixtures for both, as a user's tests have them."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.client import Message, TransactionProducer
from pocketmq.client.blocking import Producer, PushConsumer
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import ConfigError
from pocketmq.testing import NotIdle, PocketBroker
from pocketmq.testing.clock import MovableClock

MakeConsumer = Callable[..., PushConsumer]


class Seen:
    """What a handler was called with: (body, number of tries before)."""

    def __init__(self, consumer: PushConsumer, topic: str, *, fails: int = 0) -> None:
        """The handler fails at the first ``fails`` tries of each message."""
        self.calls: list[tuple[bytes, int]] = []

        @consumer.subscribe(topic)
        def handle(message: Any) -> None:
            self.calls.append((message.body, message.reconsume_times))
            if message.reconsume_times < fails:
                raise ValueError("not yet")

    @property
    def bodies(self) -> list[bytes]:
        return [body for body, _ in self.calls]


def test_wall_and_elapsed_time_move_and_monotonic_time_does_not() -> None:
    """As after a sleep of the machine; a limit of 30 s must not be over because of it."""
    clock, machine = MovableClock(), SystemClock()
    clock.advance_ms(3_600_000)
    for before, after, ahead in (
        (machine.now_ms(), clock.now_ms(), 3_600_000),
        (machine.elapsed_ns(), clock.elapsed_ns(), 3_600_000_000_000),
        (machine.monotonic_ns(), clock.monotonic_ns(), 0),
    ):
        assert ahead <= after - before < ahead + 3_000_000_000_000
    assert clock.ahead_ms == 3_600_000
    with pytest.raises(AssertionError):
        clock.advance_ms(-1)


@pytest.mark.slow
def test_all_that_was_sent_is_consumed_when_the_group_is_idle(
    pocketmq_broker: PocketBroker, pocketmq_producer: Producer, pocketmq_consumer: MakeConsumer
) -> None:
    """Also what was sent before the consumer started, and without its commits."""
    consumer = pocketmq_consumer("billing", persist_interval_ms=3_600_000)
    seen = Seen(consumer, "Orders")
    pocketmq_producer.send_batch([Message("Orders", b"%d" % number) for number in range(500)])
    consumer.start()
    pocketmq_broker.wait_idle("billing")
    assert sorted(seen.bodies) == sorted(b"%d" % number for number in range(500))


@pytest.mark.slow
def test_a_group_with_a_call_under_way_is_not_idle(
    pocketmq_broker: PocketBroker, pocketmq_producer: Producer, pocketmq_consumer: MakeConsumer
) -> None:
    """Nor is one that never came, or left messages; the error says which."""
    with pytest.raises(NotIdle, match="no consumer of slow is connected"):
        pocketmq_broker.wait_idle("slow", timeout_s=0.01)
    called, go_on = threading.Event(), threading.Event()
    consumer = pocketmq_consumer("slow")

    @consumer.subscribe("Orders")
    def handle(_message: Any) -> None:
        called.set()
        assert go_on.wait(60)

    consumer.start()
    queue_id = pocketmq_producer.send(Message("Orders", b"x")).queue_id
    assert called.wait(60)
    with pytest.raises(NotIdle, match=f"1 messages of Orders queue {queue_id} are not consumed"):
        pocketmq_broker.wait_idle("slow", timeout_s=0.01)
    go_on.set()
    pocketmq_broker.wait_idle("slow")


@pytest.mark.slow
def test_retries_of_hours_pass_at_once(
    pocketmq_broker: PocketBroker, pocketmq_producer: Producer, pocketmq_consumer: MakeConsumer
) -> None:
    """A message that succeeds at its fourth try, and one that goes to the dead letters after 16 retries."""
    consumer = pocketmq_consumer("stubborn")
    patient, hopeless = Seen(consumer, "Fourth", fails=3), Seen(consumer, "Never", fails=100)
    consumer.start()
    pocketmq_producer.send(Message("Fourth", b"a"))
    pocketmq_broker.wait_idle("stubborn")
    assert patient.calls == [(b"a", 0)]
    pocketmq_broker.wait_idle("stubborn", skip_delays=True)
    assert patient.calls == [(b"a", tries) for tries in range(4)]
    pocketmq_producer.send(Message("Never", b"b"))
    pocketmq_broker.wait_idle("stubborn", skip_delays=True)
    assert hopeless.calls == [(b"b", tries) for tries in range(17)]
    assert pocketmq_broker.app.store.max_offset("%DLQ%stubborn", 0) == 1
    assert pocketmq_broker.now_ms() - SystemClock().now_ms() > 4 * 3_600_000


@pytest.mark.slow
def test_a_delayed_message_comes_when_its_time_has_come(
    pocketmq_broker: PocketBroker, pocketmq_producer: Producer, pocketmq_consumer: MakeConsumer
) -> None:
    """Not before, also if it is sent after time was moved; the consumer stays connected all the while."""
    consumer = pocketmq_consumer("reminders")
    seen = Seen(consumer, "Reminders")
    consumer.start()
    for step, (message, text) in enumerate(
        [
            (Message("Reminders", b"in an hour", delay_time_ms=3_600_000), b"in an hour"),
            (Message("Reminders", b"a level", delay_time_level=17), b"a level"),  # an hour
            (
                Message("Reminders", b"at a time", deliver_time_ms=pocketmq_broker.now_ms() + 3 * 3_600_000),
                b"at a time",
            ),
        ]
    ):
        pocketmq_producer.send(message)
        pocketmq_broker.advance(minutes=55)
        pocketmq_broker.wait_idle("reminders")
        assert len(seen.calls) == step
        pocketmq_broker.advance(minutes=6)
        pocketmq_broker.wait_idle("reminders")
        assert seen.bodies[step:] == [text]
    group = pocketmq_broker.app.clients.consumer_group("reminders")
    assert group is not None
    assert len(group.client_ids()) == 1


@pytest.mark.slow
async def test_in_an_event_loop(pocketmq_broker: PocketBroker) -> None:
    """Clients of the loop, and a wait that does not block them."""
    calls: list[int] = []
    consumer = pocketmq_broker.consumer("async")

    @consumer.subscribe("Orders")
    async def handle(message: Any) -> None:
        calls.append(message.reconsume_times)
        if not message.reconsume_times:
            raise ValueError("not yet")

    async with pocketmq_broker.producer() as producer, consumer:
        await producer.send(Message("Orders", b"x"))
        await pocketmq_broker.until_idle("async", skip_delays=True)
        assert calls == [0, 1]
        with pytest.raises(ConfigError, match="would block the event loop"):
            pocketmq_broker.wait_idle("async")


@pytest.mark.slow
async def test_a_transaction_without_a_decision_is_checked_at_once(pocketmq_broker: PocketBroker) -> None:
    """The broker would ask after 6 s at the earliest, in a round each 30 s."""
    received = asyncio.Event()
    checked: list[bytes] = []
    consumer = pocketmq_broker.consumer("bookings")

    @consumer.subscribe("Bookings")
    async def handle(_message: Any) -> None:
        received.set()

    async def check(message: Any) -> bool:
        checked.append(message.body)
        return True

    producer = TransactionProducer("agents", pocketmq_broker.namesrv, check=check)
    async with producer, consumer:
        await producer.send_in_transaction(Message("Bookings", b"order 17"), lambda _message: None)
        await pocketmq_broker.until_idle("bookings")
        assert (checked, received.is_set()) == ([], False)
        pocketmq_broker.advance(10)
        await asyncio.wait_for(received.wait(), 60)
    assert checked == [b"order 17"]


@pytest.mark.slow
def test_time_does_not_go_back_and_a_clock_of_ones_own_is_left_alone() -> None:
    with PocketBroker() as broker, pytest.raises(ConfigError, match="time does not move: -1000 ms"):
        broker.advance(-1)
    with PocketBroker(clock=SystemClock()) as broker, pytest.raises(ConfigError, match="its clock is a SystemClock"):
        broker.advance(1)
