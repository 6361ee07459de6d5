"""Locks with their threads and log lines: time stands still, steps are taken by hand."""

from typing import Any

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.lock.fencing_tokens import FencingTokens
from pocketmq.broker.lock.lock_manager import CommitFenced, LockManager
from pocketmq.broker.lock.lock_table import LockKey, Result
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import Cause, ConfigError
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import LoopMailbox, SteppedRunner
from pocketmq.remoting.codes import RequestCode

MQ = "MessageQueue [topic=T, brokerName=broker-a, queueId=0]"


class FakeConnection:
    """Records its messages."""

    def __init__(self, name: str) -> None:
        self.remote = name
        self.closed = False
        self.sent: list[tuple[int, str]] = []

    def send_oneway(self, code: int, header: Any, body: bytes) -> None:
        self.sent.append((code, header.consumer_group))


class LoopNow:
    """A loop that calls at once."""

    def call_soon_threadsafe(self, callback: Any, *args: Any) -> None:
        callback(*args)

    call_soon = call_soon_threadsafe


class File:
    """Stands in for ``PersistedTable``: there is no file, and writing succeeds."""

    def load(self) -> bool:
        return False

    def persist(self) -> bool:
        return True


class World:
    """A manager, its clock, log and clients ``a`` and ``b``, members of group ``g``."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.log = CapturedLog()
        self.runner = SteppedRunner()
        self.a: Any = FakeConnection("1.1.1.1:1")
        self.b: Any = FakeConnection("2.2.2.2:2")
        self.members: dict[Any, str] = {self.a: "a", self.b: "b"}
        config = BrokerConfig(**settings)
        file: Any = File()
        self.locks = LockManager(
            config,
            FencingTokens(self.clock.now_ms),
            file,
            lambda group, connection: self.members.get(connection, "") if group == "g" else "",
            LoopMailbox(LoopNow()),
            self.clock,
            self.log,
        )
        self.locks.open()
        self.locks.start(self.runner)

    def lock(self, client: str, *, watches: bool = True, group: str = "g") -> Any:
        connection: Any = self.a if client == "a" else self.b
        [granted] = self.locks.try_lock(group, client, connection, [("T", 0)], watches_connection=watches)
        return granted

    def commit(self, connection: Any, token: int | None = None, group: str = "g") -> None:
        self.locks.check_commit(group, "T", 0, token, connection)

    def texts(self) -> list[tuple[str, str]]:
        return [(each["level"], each["text"]) for each in self.log.events if "text" in each]


def test_rocketmqs_lines_are_written_word_for_word() -> None:
    """Operators search logs for these lines (RebalanceLockManager, 4.9)."""
    world = World()
    world.lock("a")
    world.lock("a")
    world.lock("b")
    world.clock.advance_ms(60_001)
    world.lock("b")
    world.locks.unlock("g", "a", [("T", 0)])
    world.locks.unlock("g", "b", [("T", 0), ("T", 1)])
    world.locks.unlock("nobody", "b", [("T", 0), ("T", 1)])
    assert world.texts() == [
        ("info", f"tryLockBatch, message queue not locked, I got it. Group: g NewClientId: a {MQ}"),
        (
            "warning",
            f"tryLockBatch, message queue locked by other client. Group: g OtherClientId: a NewClientId: b {MQ}",
        ),
        ("warning", f"tryLockBatch, message queue lock expired, I got it. Group: g OldClientId: a NewClientId: b {MQ}"),
        ("warning", f"unlockBatch, but mq locked by other client: b, Group: g {MQ} a"),
        ("info", f"unlockBatch, Group: g {MQ} b"),
        (
            "warning",
            "unlockBatch, but mq not locked, Group: g MessageQueue [topic=T, brokerName=broker-a, queueId=1] b",
        ),
        ("warning", "unlockBatch, group not exist, Group: nobody b"),
    ]


def test_who_waits_is_told_at_once_when_a_lock_is_given_back() -> None:
    """With RocketMQ's own notice, which makes its clients check their queues; other clients get none."""
    world = World()
    world.lock("a")
    world.locks.unlock("g", "a", [("T", 0)])
    assert world.b.sent == []
    world.lock("a")
    world.lock("b")
    world.locks.unlock("g", "a", [("T", 0)])
    assert world.b.sent == [(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, "g")]
    assert world.a.sent == []


def test_who_waits_is_told_when_a_lock_expires() -> None:
    """One ns too early it is not."""
    world = World()
    world.lock("a")
    world.lock("b")
    world.clock.advance_ms(60_000)
    world.runner.step_all()
    assert world.b.sent == []
    world.clock.advance_ms(0.001)
    world.runner.step_all()
    assert world.b.sent == [(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, "g")]
    [event] = world.log.of("queue_lock_over")
    assert (event["why"], event["client_id"], event["waiting"]) == ("expired", "a", 1)


@pytest.mark.parametrize(
    ("mode", "watches", "released"),
    [("OFF", True, False), ("OWN", True, True), ("OWN", False, False), ("ALL", False, True)],
)
def test_the_end_of_a_connection_releases_what_the_settings_say(mode: str, watches: bool, released: bool) -> None:
    """After the grace, not before; RocketMQ's clients (which do not watch) only if configured."""
    world = World(release_locks_on_disconnect=mode, lock_release_grace_mills=500)
    world.lock("a", watches=watches)
    world.locks.connection_closed(world.a)
    world.runner.run_until_idle()
    world.clock.advance_ms(499)
    world.runner.step_all()
    assert world.lock("b").result is Result.REFUSED
    world.clock.advance_ms(1)
    world.runner.step_all()
    assert world.lock("b").result is (Result.GOT if released else Result.REFUSED)
    assert world.b.sent == ([(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, "g")] if released else [])


def test_a_client_that_is_back_within_the_grace_keeps_lock_and_token() -> None:
    """A broken connection alone moves no queue."""
    world = World()
    token = world.lock("a").lock.token
    world.locks.connection_closed(world.a)
    world.runner.run_until_idle()
    world.clock.advance_ms(900)
    again: Any = FakeConnection("1.1.1.1:3")
    [granted] = world.locks.try_lock("g", "a", again, [("T", 0)], watches_connection=True)
    assert (granted.result, granted.lock.token if granted.lock else None) == (Result.RENEWED, token)
    world.clock.advance_ms(10_000)
    world.runner.step_all()
    assert world.lock("b").result is Result.REFUSED


def test_a_connection_that_closed_while_its_request_waited_releases_too() -> None:
    """The manager would get no second notice."""
    world = World()
    world.a.closed = True
    world.lock("a")
    world.runner.run_until_idle()
    world.clock.advance_ms(1000)
    world.runner.step_all()
    assert world.lock("b").result is Result.GOT


def test_an_instance_that_lost_its_lock_cannot_commit() -> None:
    """Its token is void, whether another client holds the queue now, held it, or the broker has no record of it."""
    world = World()
    old = world.lock("a").lock.token
    world.commit(world.a, old)
    world.clock.advance_ms(60_001)
    world.commit(world.a, old)  # expired, but no client has taken it
    new = world.lock("b").lock.token
    with pytest.raises(
        CommitFenced, match=rf"token {old} is over; b has held the queue for 0 ms with token {new}"
    ) as it:
        world.commit(world.a, old)
    assert it.value.cause is Cause.FENCED
    world.commit(world.b, new)
    world.locks.unlock("g", "b", [("T", 0)])
    for token in (old, new):
        with pytest.raises(CommitFenced, match="released, or this broker was restarted"):
            world.commit(world.a, token)
    assert len(world.log.of("commit_fenced")) == 3


def test_commits_without_a_token_count_unless_another_member_has_the_lock() -> None:
    """RocketMQ's clients send none; tools are not members, and only a holder with tokens is safe from them."""
    world, tool = World(), FakeConnection("3.3.3.3:3")
    world.commit(world.a)
    world.commit(tool)
    world.lock("a", watches=False)
    world.commit(world.a)
    world.commit(tool)
    with pytest.raises(CommitFenced, match="no fencing token; a has held"):
        world.commit(world.b)
    assert not world.locks.allows_commit("g", "T", 0, world.b)
    world.commit(world.b, group="other")
    world.lock("a", watches=True)
    with pytest.raises(CommitFenced):
        world.commit(tool)
    world.clock.advance_ms(60_001)
    world.commit(world.b)
    world.commit(tool)


def test_an_administrator_takes_away_the_lock_that_was_seen() -> None:
    """A lock granted after it stays."""
    world = World()
    seen = world.lock("a").lock.token
    world.lock("b")
    assert world.locks.release(LockKey("g", "T", 0), seen + 1, "tool") is None
    assert world.locks.release(LockKey("g", "T", 0), seen, "tool") is not None
    assert world.b.sent == [(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, "g")]
    assert world.lock("b").lock.token > seen
    [event] = world.log.of("queue_lock_taken_away")
    assert (event["client_id"], event["by"]) == ("a", "tool")


def test_an_idle_manager_sleeps() -> None:
    """Without locks its worker waits to be woken; with a due lock it runs in time."""
    world = World()
    assert world.locks.step() is None
    world.lock("a")
    assert world.locks.step() == 60_000
    world.lock("b")
    assert world.locks.step() == pytest.approx(60_000, abs=1)
    world.locks.connection_closed(world.a)
    assert world.locks.step() == 1000


@pytest.mark.parametrize("settings", [{"release_locks_on_disconnect": "yes"}, {"lock_max_live_time": 0}])
def test_settings_that_cannot_be_meant_stop_the_start(settings: Any) -> None:
    """The message names the key."""
    with pytest.raises(ConfigError, match=next(iter(settings))):
        BrokerConfig(**settings)
