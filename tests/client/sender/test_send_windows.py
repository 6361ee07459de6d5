"""Order and number of sends to RocketMQ's brokers."""

from typing import Any

from pocketmq.client.connection.instance import BrokerConnection
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.sender.section import Section
from pocketmq.client.sender.send_windows import WINDOW, SendWindows
from pocketmq.common.clock import ManualClock

CHANNEL: Any = None
LINK = BrokerConnection("b", "127.0.0.1:1", CHANNEL, None)
FOREVER = 1 << 62


class Rig:
    """Windows whose sends are recorded; ``answer`` ends the oldest send of a window."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sent: list[Section] = []
        self.late: list[tuple[Section, int]] = []
        self.fails_at_once = False
        self.windows = SendWindows(self._send, self._late, self.clock)

    def _late(self, section: Section, connection: BrokerConnection, ahead: int) -> None:
        self.late.append((section, ahead))

    def _send(self, section: Section, connection: BrokerConnection, until_ns: int, window_key: Any) -> None:
        self.sent.append(section)
        if self.fails_at_once:
            self.windows.leave(window_key)

    def enter(self, queue_id: int = 0, *, in_order: bool = True, until_ns: int = FOREVER) -> Section:
        section = Section(
            None,
            MessageQueue("T", "b", queue_id),
            build=None,
            started_ns=0,
            deadline_ns=until_ns,
            born_ms=0,
            attempts_max=1,
            may_move=not in_order,
        )
        self.windows.enter(section, LINK, until_ns, in_order=in_order)
        return section


async def test_one_send_of_a_queue_is_on_the_way_and_the_others_follow_in_order() -> None:
    """Queues do not wait for each other."""
    rig = Rig()
    first, second, third = (rig.enter(0) for _ in range(3))
    other = rig.enter(1)
    assert rig.sent == [first, other]
    rig.windows.leave(first.queue)
    rig.windows.leave(first.queue)
    assert rig.sent == [first, other, second, third]
    rig.windows.leave(first.queue)
    rig.windows.leave(other.queue)
    assert not rig.windows._windows, "an idle window is forgotten"


async def test_free_sends_have_a_window_for_each_broker() -> None:
    """A RocketMQ broker refuses requests that wait for its threads: the window stays within its capacity."""
    rig = Rig()
    sections = [rig.enter(number % 4, in_order=False) for number in range(WINDOW + 5)]
    assert rig.sent == sections[:WINDOW]
    assert len(rig.windows) == 5
    for _ in range(WINDOW + 5):
        rig.windows.leave(LINK.address)
    assert rig.sent == sections
    assert not rig.windows._windows


async def test_the_parts_of_a_refused_batch_go_before_what_waits() -> None:
    """They keep the batch's place in the order."""
    rig = Rig()
    batch, behind = rig.enter(), rig.enter()
    parts = [Rig().enter() for _ in range(3)]
    rig.windows.put_back(parts, LINK, FOREVER, batch.queue)
    for _ in range(5):
        rig.windows.leave(batch.queue)
    assert rig.sent == [batch, *parts, behind]


async def test_sends_that_fail_at_once_do_not_nest() -> None:
    """A closed connection ends thousands of waiting sends one after the other, without recursion."""
    rig = Rig()
    first = rig.enter()
    waiting = [rig.enter() for _ in range(2_000)]
    rig.fails_at_once = True
    rig.windows.leave(first.queue)
    assert rig.sent == [first, *waiting]


async def test_who_waited_too_long_is_told_and_never_sent() -> None:
    """The periodic check ends it, or its own turn."""
    rig = Rig()
    first = rig.enter()
    late, patient = rig.enter(until_ns=rig.clock.monotonic_ns() + 10), rig.enter()
    rig.clock.advance_ms(1)
    rig.windows._end_late()
    assert rig.late == [(late, 1)]
    also_late = rig.enter(until_ns=rig.clock.monotonic_ns() + 10)
    rig.clock.advance_ms(1)
    rig.windows.leave(first.queue)
    rig.windows.leave(first.queue)
    assert rig.sent == [first, patient]
    assert [section for section, _ in rig.late] == [late, also_late]


async def test_at_the_end_of_the_producer_nothing_waits_any_more() -> None:
    """Waiting sections are returned to the sender; later answers start no further send."""
    rig = Rig()
    first = rig.enter()
    waiting = [rig.enter() for _ in range(3)]
    assert rig.windows.take_all() == waiting
    rig.windows.leave(first.queue)
    assert rig.sent == [first]
