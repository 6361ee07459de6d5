"""The limits of addresses, clients and users; who may connect."""

from dataclasses import dataclass
from typing import Any

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import Cause, Stored
from pocketmq.common.refusals import find
from pocketmq.remoting.codec import Request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import MSGPACK
from pocketmq.remoting.limits import server_limits
from pocketmq.remoting.limits.config import LimitsConfig
from pocketmq.remoting.limits.quota import Quota, QuotaExceeded, messages_of
from pocketmq.remoting.limits.server_limits import ServerLimits
from pocketmq.remoting.limits.user_limits import UserLimits
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader

R = RequestCode


@dataclass
class Peer:
    """What limits see of a connection."""

    host: str = "10.0.0.1"
    quota: Quota | None = None
    quota_user: str = ""


class Rig:
    """Limits under a manual clock."""

    def __init__(self, **settings: int) -> None:
        self.clock = ManualClock()
        self.refused: list[QuotaExceeded] = []
        self.limits = ServerLimits(LimitsConfig(**settings), self.clock, self.refused.append)

    def peer(self, host: str = "10.0.0.1", user: str = "", **limits: int) -> Any:
        peer = Peer(host)
        self.limits.opened(peer)
        if user:
            assert self.limits.speaks(peer, user, UserLimits(**limits)) is None
        return peer

    def send(self, peer: Any, count: int = 1, size_bytes: int = 0) -> QuotaExceeded | None:
        """Return the refusal of a send with so many records."""
        return self.ask(peer, append(count, size_bytes))

    def ask(self, peer: Any, request: Request) -> QuotaExceeded | None:
        refusal: QuotaExceeded | None = peer.quota.refusal(request, self.clock.monotonic_ns())
        return refusal


def counted(limits: ServerLimits) -> dict[str, int]:
    return {kind: count for kind, count in limits.counts.items() if count}


def append(count: int, size_bytes: int = 0) -> Request:
    header = NativeAppendRequestHeader("p", True, [("T", 0, count)], 1000)
    return Request(R.NATIVE_APPEND, 1, False, 0, 0, MSGPACK, header, bytes(max(size_bytes, 4 * count)), {})


def other(code: int, size_bytes: int = 0) -> Request:
    return Request(code, 1, False, 0, 0, MSGPACK, None, bytes(size_bytes), {})


def test_without_limits_a_connection_has_no_quota_and_everybody_may_connect() -> None:
    rig = Rig()
    assert rig.peer().quota is None
    peer = Peer()
    assert rig.limits.speaks(peer, "app", None) is None
    assert (peer.quota, peer.quota_user) == (None, "")
    assert all(rig.limits.admits("10.0.0.1") for _ in range(1000))


def test_a_refusal_says_whose_limit_it_is_and_when_to_come_again() -> None:
    rig = Rig(client_messages_in_per_second=10)
    peer = rig.peer()
    assert rig.send(peer, 25) is None
    refused = rig.send(peer)
    assert refused is not None
    assert str(refused) == (
        "[QUOTA]system busy, start flow control for a while: over the limit of this client of 10.0.0.1: messages sent,"
        " 10 a second (limits.client_messages_in_per_second)"
    )
    assert (refused.code, refused.cause, refused.stored) == (2, Cause.QUOTA, Stored.NO)
    assert 1_500 <= refused.retry_after_ms <= 1_502
    assert [match.row.cause for match in find(str(refused))] == [Cause.QUOTA]
    rig.clock.advance_ms(refused.retry_after_ms)
    assert rig.send(peer) is None
    assert (counted(rig.limits), rig.refused) == ({"messages_in": 1}, [refused])


def test_clients_have_their_own_buckets_and_share_those_of_address_and_user() -> None:
    rig = Rig(client_messages_in_per_second=10, address_messages_in_per_second=100)
    limits: Any = {"messages_in_per_second": 1_000}
    one, two = rig.peer(user="app", **limits), rig.peer(user="app", **limits)
    elsewhere = rig.peer("10.0.0.2", user="app", **limits)
    assert rig.send(one, 50) is None
    assert "this client" in str(rig.send(one))
    assert rig.send(two, 60) is None
    third = rig.peer()
    assert "address 10.0.0.1" in str(rig.send(third))
    assert rig.send(elsewhere, 2_000) is None
    assert "user app" in str(rig.send(rig.peer("10.0.0.3", user="app", **limits)))
    assert rig.send(rig.peer("10.0.0.3", user="other", **limits)) is None


@pytest.mark.parametrize(("messages", "size_bytes", "kind"), [(1, 100_000, "bytes"), (100, 400, "messages")])
def test_of_several_limits_the_refusal_names_the_one_to_wait_for(messages: int, size_bytes: int, kind: str) -> None:
    rig = Rig(client_bytes_in_per_second=1_000, client_messages_in_per_second=1)
    peer = rig.peer()
    assert rig.send(peer, messages, size_bytes) is None
    assert rig.send(peer) is not None
    refused = rig.send(peer)
    assert refused is not None
    assert f"{kind} sent" in str(refused)
    rig.clock.advance_ms(refused.retry_after_ms)
    assert refused.retry_after_ms == 60_000 or rig.send(peer) is None


def test_bytes_are_those_of_whole_frames() -> None:
    rig = Rig(address_bytes_in_per_second=1_000)
    peer = rig.peer()
    assert rig.send(peer, 1, 1_000 - 8) is None
    refused = rig.send(peer)
    assert refused is not None
    assert "bytes sent, 1000 a second" in str(refused)


@pytest.mark.parametrize(
    "code", [R.HEART_BEAT, R.UPDATE_CONSUMER_OFFSET, R.LOCK_BATCH_MQ, R.END_TRANSACTION, R.NATIVE_PULL, R.HELLO]
)
def test_what_keeps_a_client_alive_is_let_through_and_paid(code: RequestCode) -> None:
    rig = Rig(client_bytes_in_per_second=1_000)
    peer = rig.peer()
    for _ in range(4):
        assert rig.ask(peer, other(code, 1_000 - 8)) is None
    refused = rig.send(peer)
    assert refused is not None
    assert 3_000 <= refused.retry_after_ms <= 3_100


def test_a_frame_has_at_most_as_many_messages_as_fit() -> None:
    """A count that a frame only claims must not put others of the same user into debt."""
    header = NativeAppendRequestHeader("p", True, [("T", 0, 1 << 31), ("T", 1, -5)], 1000)
    request = Request(R.NATIVE_APPEND, 1, False, 0, 0, MSGPACK, header, bytes(40), {})
    assert messages_of(request) == 10
    assert messages_of(other(R.SEND_MESSAGE_V2)) == 1
    assert messages_of(other(R.PULL_MESSAGE)) is None


def test_a_long_debt_asks_to_come_again_after_a_minute() -> None:
    rig = Rig(client_messages_in_per_second=1)
    peer = rig.peer()
    assert rig.send(peer, 100_000) is None
    refused = rig.send(peer)
    assert refused is not None
    assert refused.retry_after_ms == 60_000


def test_pulls_pay_when_their_answers_leave() -> None:
    rig = Rig(client_bytes_out_per_second=1_000, client_messages_out_per_second=1_000)
    quota = rig.peer().quota
    now_ns = rig.clock.monotonic_ns()
    assert quota.closed_by(now_ns) is None
    quota.sent(10, 5_000, now_ns)
    bucket = quota.closed_by(now_ns)
    assert (bucket.limit.kind, bucket.wait_ns(now_ns) // 1_000_000) == ("bytes_out", 4_000)
    assert quota.take(1_000_000, 1_000_000, now_ns) is None


def test_a_changed_limit_holds_on_open_connections() -> None:
    rig = Rig()
    peer = rig.peer(user="app", messages_in_per_second=1)
    assert rig.send(peer, 100) is None
    assert rig.send(peer) is not None
    assert rig.limits.speaks(peer, "app", UserLimits(messages_in_per_second=1_000)) is None
    assert rig.send(peer, 100) is None
    assert rig.limits.speaks(peer, "app", None) is None
    assert (peer.quota, peer.quota_user) == (None, "")


def test_another_user_on_the_same_connection_does_not_forget_the_client_s_debt() -> None:
    rig = Rig(client_messages_in_per_second=1)
    peer = rig.peer()
    assert rig.send(peer, 100) is None
    for user in ("a", "b"):
        rig.limits.speaks(peer, user, UserLimits(messages_in_per_second=1_000))
        assert "this client" in str(rig.send(peer))
    rig.limits.speaks(peer, "c", None)
    assert "this client" in str(rig.send(peer))


def test_a_user_has_so_many_connections_and_one_more_when_one_ends() -> None:
    rig = Rig()
    first = rig.peer(user="app", connections_max=2)
    rig.peer(user="app", connections_max=2)
    third = Peer()
    refused = rig.limits.speaks(third, "app", UserLimits(connections_max=2))
    assert str(refused) == "[QUOTA]connection refused: user app has 2 connections, limit 2"
    assert refused is not None
    assert (refused.code, refused.retry_after_ms) == (2, 1_000)
    rig.limits.closed(first)
    rig.limits.closed(first)
    assert rig.limits.speaks(third, "app", UserLimits(connections_max=2)) is None
    assert rig.limits.speaks(third, "app", UserLimits(connections_max=2)) is None
    assert rig.limits.users["app"].connections == 2


def test_new_connections_of_an_address_and_of_all() -> None:
    rig = Rig(connects_per_address_per_second=5, connects_per_second=20)
    assert sum(rig.limits.admits("10.0.0.1") for _ in range(50)) == 5
    assert sum(rig.limits.admits(f"10.0.1.{number}") for number in range(100)) == 15
    rig.clock.advance_ms(200)
    assert rig.limits.admits("10.0.0.1")
    assert not rig.limits.admits("10.0.0.1") or rig.limits.admits("10.0.0.9")
    assert rig.limits.counts["connects"] >= 130


def test_an_address_that_is_barred_connects_again_later() -> None:
    rig = Rig()
    rig.limits.bar("10.0.0.1", rig.clock.monotonic_ns() + 500_000_000)
    assert not rig.limits.admits("10.0.0.1")
    assert rig.limits.admits("10.0.0.2")
    rig.clock.advance_ms(500)
    assert rig.limits.admits("10.0.0.1")
    assert (rig.limits.barred, counted(rig.limits)) == ({}, {"logins": 1})


def test_what_peers_can_fill_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOSTS_MAX", "USERS_MAX", "BARRED_MAX"):
        monkeypatch.setattr(server_limits, name, 4)
    rig = Rig(connects_per_address_per_second=1, address_bytes_in_per_second=1)
    stays = rig.peer("10.9.9.9", user="stays", connections_max=1)
    for number in range(50):
        host = f"10.0.0.{number}"
        rig.limits.admits(host)
        peer = rig.peer(host, user=f"user{number}", connections_max=1)
        rig.limits.closed(peer)
        rig.limits.bar(host, rig.clock.monotonic_ns() + 1)
    limits = rig.limits
    assert max(len(limits.hosts), len(limits.connects), len(limits.users), len(limits.barred)) <= 4
    assert (limits.users["stays"].connections, stays.quota_user) == (1, "stays")


@pytest.mark.parametrize("settings", [{"user_bytes_in_per_second": -1}, {"burst_mills": 0}, {"burst_mills": 60_001}])
def test_settings_that_cannot_be(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"limits.{next(iter(settings))}="):
        LimitsConfig(**settings)
