"""Members learn of each change of their group, and a crowd that joins costs no more than its size."""

from collections.abc import Callable
from typing import Any

from pocketmq.broker.group.client_table import ClientInfo, ClientTable
from pocketmq.broker.group.group_notifier import NOTICE_S, TURN_MEMBERS, GroupNotifier
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.client import SubscriptionData


class FakeLoop:
    """Timers that fire when the test says so."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[..., None], Any]] = []

    def post(self, callback: Callable[..., None], *args: Any) -> None:
        """Run at once, as a mailbox of this thread."""
        callback(*args)

    call_soon = post

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> None:
        """Keep a timer."""
        self.timers.append((delay_s, callback, args))

    def fire(self) -> int:
        """Run the timers that are kept; return how many."""
        timers, self.timers = self.timers, []
        for delay_s, callback, args in timers:
            assert delay_s == NOTICE_S
            callback(*args)
        return len(timers)


class Member:
    """A connection that counts its notices."""

    def __init__(self, notices: list[int]) -> None:
        self.closed = False
        self.notices = notices

    def send_oneway(self, code: int, header: Any, body: bytes) -> None:
        """Count."""
        assert (code, header.consumer_group) == (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, "crowd")
        self.notices.append(code)


class NoGroups:
    """Settings of groups: all have the defaults."""

    def get(self, name: str) -> None:
        """Return None."""


def notifier(table: ClientTable[Any], loop: FakeLoop, *, enabled: bool = True) -> GroupNotifier:
    """Return a notifier on a loop that the test holds."""
    fakes: Any = loop
    groups: Any = NoGroups()
    return GroupNotifier(table, groups, fakes, fakes, enabled=enabled)


def join(table: ClientTable[Any], member: Member) -> None:
    """Send a heartbeat."""
    client = ClientInfo(member, f"c{id(member)}", 3, 409, 0)
    table.register_consumer("crowd", client, "PASSIVELY", "CLUSTERING", "X", [SubscriptionData(topic="T")])


def test_a_crowd_that_joins_gets_two_notices_each() -> None:
    """One for the first change, and one for all others of the next 200 ms: not one for each pair of members."""
    table: ClientTable[Any] = ClientTable(10_000)
    loop, notices = FakeLoop(), list[int]()
    notify = notifier(table, loop)
    count = 3 * TURN_MEMBERS
    for _ in range(count):
        join(table, Member(notices))
        notify.members_changed(["crowd"])
    assert len(notices) == 1
    assert loop.fire() == 1
    assert len(notices) == 1 + count
    assert loop.fire() == 1
    assert len(notices) == 1 + count
    assert (loop.fire(), notify.groups_quiet) == (0, 0)
    notify.members_changed(["crowd"])
    assert len(notices) == 1 + 2 * count


def test_a_change_during_the_pause_is_not_lost() -> None:
    """It is announced when the pause is over, however often that happens."""
    table: ClientTable[Any] = ClientTable(10)
    loop, notices = FakeLoop(), list[int]()
    notify = notifier(table, loop)
    join(table, Member(notices))
    for expected in (1, 2, 3):
        notify.members_changed(["crowd"])
        if expected > 1:
            loop.fire()
        assert len(notices) == expected


def test_a_group_that_is_gone_leaves_nothing() -> None:
    """Nor does a switched-off notifier keep anything."""
    table: ClientTable[Any] = ClientTable(10)
    loop, notices = FakeLoop(), list[int]()
    notify = notifier(table, loop)
    member = Member(notices)
    join(table, member)
    notify.members_changed(["crowd"])
    table.close(member)
    notify.members_changed(["crowd"])
    loop.fire()
    assert (len(notices), notify.groups_quiet, loop.timers) == (1, 0, [])
    notifier(table, loop, enabled=False).members_changed(["crowd"])
    assert loop.timers == []
