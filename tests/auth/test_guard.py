"""Who is let through, for what."""

import hmac
from typing import Any

import msgspec
import pytest

from pocketmq.auth.auth_table import AuthContents, AuthTable
from pocketmq.auth.config import AuthConfig
from pocketmq.auth.denials import DENIALS_MAX, Denials
from pocketmq.auth.guard import FAILURES_MAX, AuthGuard, source_of
from pocketmq.auth.needed import NAMES_IN, NAMES_MAX
from pocketmq.auth.policies import Policy, entry_of
from pocketmq.auth.users import User, UserStatus, UserType
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.codec import Request, decode_request, encode_request
from pocketmq.remoting.codec_binary import encode_binary
from pocketmq.remoting.codec_json import encode_json
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import BINARY, JSON, MSGPACK, PREFIX_BYTES, Frame
from pocketmq.remoting.limits.config import LimitsConfig
from pocketmq.remoting.limits.quota import QuotaExceeded
from pocketmq.remoting.limits.server_limits import ServerLimits
from pocketmq.remoting.limits.user_limits import UserLimits
from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.protocol.access import Place
from pocketmq.remoting.protocol.authenticate import AuthenticateRequestHeader, AuthenticateResponseHeader
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.client import ConsumerData, HeartbeatData, SubscriptionData
from pocketmq.remoting.protocol.namesrv import GetRouteInfoRequestHeader
from pocketmq.remoting.protocol.pop import AckMessageRequestHeader
from pocketmq.remoting.protocol.pull import NativePullRequestHeader, PullMessageRequestHeader
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader, SendMessageRequestHeader
from pocketmq.remoting.security.credentials import Credentials
from pocketmq.remoting.security.proof import client_proof, server_proof
from pocketmq.remoting.security.signature import sign
from pocketmq.remoting.string_map import WRITERS

ROOT = User(username="root", password="root-secret", user_type=UserType.SUPER)
ALICE = User(username="alice", password="alice-secret")
POLICIES = (
    Policy(
        (
            entry_of("Topic:orders", ["Pub", "Sub"], "Allow"),
            entry_of("Group:billing", ["Sub"], "Allow"),
            entry_of("Topic:local", ["Pub"], "Allow", ["127.0.0.1"]),
        )
    ),
)
NONCE = "n" * 16


class FakeConnection:
    """What a guard sees of a connection."""

    def __init__(self, host: str = "10.1.2.3") -> None:
        self.host = host
        self.remote = f"{host}:5000"
        self.session: Any = None
        self.nonce = ""
        self.peer_name = ""
        self.speaker: Any = None
        self.quota: Any = None
        self.quota_user = ""


class Rig:
    """A guard with root, alice and her policies."""

    def __init__(self, **config: Any) -> None:
        self.clock = ManualClock()
        self.table = AuthTable(AuthContents().with_user(ROOT).with_user(ALICE).with_policies("alice", POLICIES))
        self.denials = Denials(self.clock.now_ms)
        settings = {"authentication_enabled": True, "authorization_enabled": True, **config}
        self.guard = AuthGuard(AuthConfig(**settings), self.table, cluster="C", clock=self.clock, denials=self.denials)

    def prove(self, connection: Any, user: User = ALICE, *, secret: str = "") -> Any:
        nonce = self.guard.nonce(connection)
        proof = client_proof(secret or user.password, user.username, nonce, NONCE)
        header = AuthenticateRequestHeader(user=user.username, nonce=NONCE, proof=proof)
        answer = self.guard.authenticate(connection, header)
        if isinstance(answer, AuthenticateResponseHeader):
            assert answer.proof == server_proof(user.password, user.username, nonce, NONCE)
        return answer

    def proved(self, user: User = ALICE, host: str = "10.1.2.3") -> Any:
        connection = FakeConnection(host)
        assert isinstance(self.prove(connection, user), AuthenticateResponseHeader)
        return connection

    def refusal(self, connection: Any, request: Request) -> str:
        """Return the text of the refusal, empty if there is none."""
        refused = self.guard.refusal(connection, request)
        assert refused is None or isinstance(refused, PocketMQError)
        return "" if refused is None else str(refused)


def received(
    code: int, header: Any = None, body: bytes = b"", *, kind: int = MSGPACK, keys: Credentials | None = None
) -> Request:
    """Return a request as a server decodes it, signed if ``keys`` are given."""
    extra = {}
    if keys is not None:
        extra = sign(keys, WRITERS[type(header)](header) if header is not None else {}, body)
    data = b"".join(encode_request(code, 1, header, body, serialize_type=kind, extra=extra))
    header_bytes = int.from_bytes(data[5:8], "big")
    cut = PREFIX_BYTES + header_bytes
    return decode_request(Frame(kind, memoryview(data)[PREFIX_BYTES:cut], memoryview(data)[cut:]))


def append(*topics: str) -> Request:
    return received(
        RequestCode.NATIVE_APPEND,
        NativeAppendRequestHeader(
            producer_group="p", wait=True, sections=[(topic, 0, 1) for topic in topics], timeout_ms=3000
        ),
    )


def send(topic: str, keys: Credentials | None, *, kind: int = JSON) -> Request:
    header = SendMessageRequestHeader(
        producer_group="p",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
        properties="",
    )
    return received(RequestCode.SEND_MESSAGE, header, b"body", kind=kind, keys=keys)


@pytest.mark.parametrize("code", list(RequestCode), ids=lambda code: code.name)
def test_a_stranger_may_do_nothing(code: RequestCode) -> None:
    """No code is forgotten. (The connection serves those that open it itself.)"""
    request = Request(int(code), 1, False, 0, 0, MSGPACK, None, b"", {})
    assert Rig().refusal(FakeConnection(), request)


@pytest.mark.parametrize("code", [0, 9_999, 200_056, -1])
def test_a_code_without_a_rule_is_refused_even_to_the_super_user(code: int) -> None:
    rig = Rig()
    request = Request(code, 1, False, 0, 0, MSGPACK, None, b"", {})
    assert "not supported" in rig.refusal(rig.proved(ROOT), request)


@pytest.mark.parametrize("code", [code for code, spec in PROTOCOL.items() if spec.access.needs])
def test_a_user_without_policies_may_do_nothing(code: int) -> None:
    """Codes whose needs stand in a body without names, or in stored messages, are decided later."""
    rig = Rig()
    rig.table.replace(rig.table.contents.with_policies("alice", ()))
    spec = PROTOCOL[code]
    if all(need.name in (Place.STORED, Place.BODY) for need in spec.access.needs):
        return
    header: Any = None
    if spec.request is not None:
        hints = msgspec.structs.fields(spec.request)
        values: dict[str, Any] = {}
        for field in hints:
            if any(need.name == field.name for need in spec.access.needs):
                values[field.name] = "some-name" if "list" not in str(field.type) else [("some-name", 0, 1)]
            elif field.required:
                values[field.name] = "" if field.type is str else 0
        header = spec.request(**values)
    request = Request(code, 1, False, 0, 0, MSGPACK, header, b"", {})
    assert "alice has no permission" in rig.refusal(rig.proved(), request)


def test_every_body_with_names_can_be_read() -> None:
    bodies = {spec.body for spec in PROTOCOL.values() if any(n.name is Place.BODY for n in spec.access.needs)}
    assert bodies == set(NAMES_IN)


def test_a_proved_connection_may_do_what_the_policies_say() -> None:
    rig = Rig()
    alice = rig.proved()
    assert rig.refusal(alice, append("orders")) == ""
    refused = rig.refusal(alice, append("orders", "payments"))
    assert refused == ("User:alice has no permission to access Topic:payments from 10.1.2.3, no matched policies.")
    assert rig.refusal(rig.proved(ROOT), append("orders", "payments")) == ""
    assert [(denial.user, denial.resource, denial.action) for denial in rig.denials.entries] == [
        ("alice", "Topic:payments", "Pub")
    ]


def test_a_retry_topic_stands_for_its_group() -> None:
    rig = Rig()
    alice = rig.proved()

    def pull(topic: str, group: str) -> str:
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=0,
            queue_offset=0,
            max_msg_nums=1,
            sys_flag=0,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
        )
        return rig.refusal(alice, received(RequestCode.PULL_MESSAGE, header, kind=JSON))

    assert pull("orders", "billing") == ""
    assert pull("%RETRY%billing", "billing") == ""
    assert "Group:other" in pull("%RETRY%other", "billing")
    assert "Group:other" in pull("orders", "other")
    assert rig.refusal(alice, append("%RETRY%billing")) == ""
    assert "Topic:%DLQ%billing" in pull("%DLQ%billing", "billing")


def test_each_group_and_topic_of_a_heartbeat_counts() -> None:
    rig = Rig()
    alice = rig.proved()

    def beat(group: str, *topics: str) -> str:
        subscriptions = [SubscriptionData(topic=topic) for topic in topics]
        consumers = [ConsumerData(group_name=group, subscription_data_set=subscriptions)]
        body = encode_body(HeartbeatData(client_id="c", consumer_data_set=consumers))
        return rig.refusal(alice, received(RequestCode.HEART_BEAT, None, body, kind=JSON))

    assert beat("billing", "orders", "%RETRY%billing") == ""
    assert "Topic:payments" in beat("billing", "orders", "payments")
    assert "Group:other" in beat("other", "orders")
    assert rig.refusal(alice, received(RequestCode.HEART_BEAT, None, b"{", kind=JSON)) != ""
    assert "are checked" in rig.refusal(alice, received(RequestCode.HEART_BEAT, None, b" " * 600_000, kind=JSON))


@pytest.mark.parametrize("kind", [JSON, 1])
def test_a_signed_request_needs_no_proof(kind: int) -> None:
    rig = Rig()
    connection = FakeConnection()
    keys = Credentials("alice", "alice-secret")
    assert rig.refusal(connection, send("orders", keys, kind=kind)) == ""
    assert "Topic:payments" in rig.refusal(connection, send("payments", keys, kind=kind))
    assert (
        rig.refusal(connection, send("orders", Credentials("alice", "another"), kind=kind)) == "check signature failed."
    )
    assert rig.refusal(connection, send("orders", Credentials("carol", "x"), kind=kind)) == "User:carol is not found."
    assert "username cannot be null." in rig.refusal(connection, send("orders", None, kind=kind))
    assert connection.session is None


def test_a_changed_body_or_field_breaks_the_signature() -> None:
    rig = Rig()
    request = send("orders", Credentials("alice", "alice-secret"))
    request.body = b"Body"
    assert rig.refusal(FakeConnection(), request) == "check signature failed."
    request = send("orders", Credentials("alice", "alice-secret"))
    request.signed = {**(request.signed or {}), "topic": "payments"}
    assert rig.refusal(FakeConnection(), request) == "check signature failed."


def test_a_signature_on_a_proved_connection_decides_for_its_request() -> None:
    rig = Rig()
    root = rig.proved(ROOT)
    assert "alice has no permission" in rig.refusal(root, send("payments", Credentials("alice", "alice-secret")))


@pytest.mark.parametrize("secret", ["wrong", ""])
def test_a_wrong_proof_is_refused_and_a_nonce_is_answered_once(secret: str) -> None:
    rig = Rig()
    connection: Any = FakeConnection()
    nonce = rig.guard.nonce(connection)
    right = client_proof("alice-secret", "alice", nonce, NONCE)
    header = AuthenticateRequestHeader(user="alice", nonce=NONCE, proof=secret)
    assert str(rig.guard.authenticate(connection, header)) == "check signature failed."
    again = AuthenticateRequestHeader(user="alice", nonce=NONCE, proof=right)
    assert str(rig.guard.authenticate(connection, again)) == "check signature failed.", "its nonce was used"
    other: Any = FakeConnection()
    rig.guard.nonce(other)
    assert str(rig.guard.authenticate(other, again)) == "check signature failed.", "recorded on another connection"


def test_a_proof_without_a_nonce_of_the_server_is_refused() -> None:
    """The empty nonce is no nonce."""
    rig = Rig()
    connection: Any = FakeConnection()
    proof = client_proof("alice-secret", "alice", "", NONCE)
    header = AuthenticateRequestHeader(user="alice", nonce=NONCE, proof=proof)
    assert str(rig.guard.authenticate(connection, header)) == "check signature failed."


def test_unknown_users_get_the_same_answer_as_wrong_secrets() -> None:
    rig = Rig()
    carol = User(username="carol", password="whatever")
    assert str(rig.prove(FakeConnection(), carol)) == str(rig.prove(FakeConnection(), ALICE, secret="wrong"))


def test_changes_take_effect_on_open_connections() -> None:
    rig = Rig()
    alice, contents = rig.proved(), rig.table.contents
    assert rig.refusal(alice, append("orders")) == ""
    rig.table.replace(contents.with_policies("alice", ()))
    assert "no matched policies" in rig.refusal(alice, append("orders"))
    rig.table.replace(contents)
    assert rig.refusal(alice, append("orders")) == ""
    disabled = msgspec.structs.replace(ALICE, user_status=UserStatus.DISABLE)
    rig.table.replace(contents.with_user(disabled))
    assert rig.refusal(alice, append("orders")) == "User:alice is disabled."
    rig.table.replace(contents)
    assert "username cannot be null." in rig.refusal(alice, append("orders")), (
        "the connection has to prove itself again"
    )


@pytest.mark.parametrize("change", ["deleted", "password"])
def test_a_user_without_the_old_secret_is_out(change: str) -> None:
    rig = Rig()
    alice, contents = rig.proved(), rig.table.contents
    if change == "deleted":
        rig.table.replace(contents.without_user("alice"))
        assert rig.refusal(alice, append("orders")) == "User:alice is not found."
    else:
        rig.table.replace(contents.with_user(msgspec.structs.replace(ALICE, password="another one")))
        assert "another password" in rig.refusal(alice, append("orders"))


def test_addresses_count() -> None:
    rig = Rig()
    assert rig.refusal(rig.proved(host="127.0.0.1"), append("local")) == ""
    assert rig.refusal(rig.proved(host="::ffff:127.0.0.1"), append("local")) == ""
    assert "no matched policies" in rig.refusal(rig.proved(host="127.0.0.2"), append("local"))
    assert source_of("fe80::1%eth0") is not None
    assert source_of("") is None


def test_many_wrong_signatures_are_refused_unread_for_a_second() -> None:
    rig = Rig()
    connection: Any = FakeConnection()
    wrong, right = Credentials("alice", "wrong"), Credentials("alice", "alice-secret")
    for _ in range(FAILURES_MAX):
        assert rig.refusal(connection, send("orders", wrong)) == "check signature failed."
    refused = rig.guard.refusal(connection, send("orders", right))
    assert isinstance(refused, QuotaExceeded)
    assert str(refused) == f"[QUOTA]not checked: more than {FAILURES_MAX} wrong signatures a second from 10.1.2.3"
    assert (refused.code, refused.retriable, 1 <= refused.retry_after_ms <= 1_000) == (2, True, True)
    assert rig.refusal(FakeConnection("10.9.9.9"), send("orders", right)) == ""
    rig.clock.advance_ms(1_000)
    assert rig.refusal(connection, send("orders", right)) == ""


def test_who_has_signed_well_is_served_while_the_address_is_flooded() -> None:
    """As another user the same connection is a stranger."""
    rig = Rig()
    connection, right = FakeConnection(), Credentials("alice", "alice-secret")
    assert rig.refusal(connection, send("orders", right)) == ""
    for _ in range(FAILURES_MAX):
        rig.refusal(FakeConnection(), send("orders", Credentials("alice", "wrong")))
    assert rig.refusal(connection, send("orders", right)) == ""
    assert rig.refusal(connection, send("orders", Credentials("root", "root-secret"))).startswith("[QUOTA]")
    assert rig.refusal(FakeConnection(), send("orders", right)).startswith("[QUOTA]")


def quota_of(connection: Any) -> Any:
    return connection.quota


def limited(rig: Rig, **settings: int) -> ServerLimits:
    rig.guard.limits = ServerLimits(LimitsConfig(**settings), rig.clock)
    return rig.guard.limits


def test_an_address_that_fails_too_often_may_not_connect_for_the_rest_of_the_second() -> None:
    rig = Rig()
    limits = limited(rig)
    for _ in range(FAILURES_MAX):
        assert limits.admits("10.1.2.3")
        assert isinstance(rig.prove(FakeConnection(), secret="wrong"), PocketMQError)
    assert not limits.admits("10.1.2.3")
    assert limits.admits("10.9.9.9")
    rig.clock.advance_ms(1_000)
    assert limits.admits("10.1.2.3")


def test_a_user_s_limits_are_those_of_the_settings_unless_it_has_its_own() -> None:
    rig = Rig(inner_access_key="inner", inner_secret_key="inner-secret")
    limited(rig, user_messages_in_per_second=1_000, user_connections_max=7)
    own = msgspec.structs.replace(ALICE, limits=UserLimits(messages_in_per_second=5, connections_max=0))
    of_settings = rig.proved().session.limits
    assert (of_settings.messages_in_per_second, of_settings.connections_max) == (1_000, 7)
    rig.table.replace(rig.table.contents.with_user(own))
    of_alice = rig.proved().session.limits
    assert (of_alice.messages_in_per_second, of_alice.connections_max, of_alice.topics_max) == (5, 0, 0)
    assert rig.proved(ROOT).session.limits is None
    assert rig.proved(User(username="inner", password="inner-secret")).session.limits is None


@pytest.mark.parametrize("kind", [JSON, MSGPACK])
def test_a_change_of_a_user_s_limits_holds_on_its_open_connections(kind: int) -> None:
    rig = Rig()
    limited(rig)
    right = Credentials("alice", "alice-secret")
    connection: Any = FakeConnection() if kind == JSON else rig.proved()
    request = send("orders", right) if kind == JSON else append("orders")
    assert rig.refusal(connection, request) == ""
    assert quota_of(connection) is None
    slow = msgspec.structs.replace(ALICE, limits=UserLimits(messages_in_per_second=5))
    rig.table.replace(rig.table.contents.with_user(slow))
    assert rig.refusal(connection, request) == ""
    assert [bucket.limit.rate for bucket in quota_of(connection).inbound] == [5]
    rig.table.replace(rig.table.contents.with_user(ALICE))
    assert rig.refusal(connection, request) == ""
    assert quota_of(connection) is None


def test_a_connection_beyond_the_user_s_number_is_refused_however_its_user_is_known() -> None:
    rig = Rig()
    limits = limited(rig, user_connections_max=1)
    assert isinstance(rig.prove(FakeConnection()), AuthenticateResponseHeader)
    by_proof, by_signature, by_certificate = FakeConnection(), FakeConnection(), FakeConnection()
    by_certificate.peer_name = "alice"
    text = "[QUOTA]connection refused: user alice has 1 connections, limit 1"
    assert str(rig.prove(by_proof)) == text
    assert rig.refusal(by_signature, send("orders", Credentials("alice", "alice-secret"))) == text
    for _ in range(2):
        assert rig.refusal(by_certificate, append("orders")) == text
    assert [each.session for each in (by_proof, by_signature, by_certificate)] == [None, None, None]
    assert limits.counts["connections"] == 4


def test_those_who_guess_do_not_lock_out_who_has_signed_before() -> None:
    """Clients behind one address share its count of failures."""
    rig = Rig()
    known, guesser = FakeConnection(), FakeConnection()
    right = Credentials("alice", "alice-secret")
    assert rig.refusal(known, send("orders", right)) == ""
    for _ in range(FAILURES_MAX + 1):
        said = rig.refusal(guesser, send("orders", Credentials("alice", "wrong-secret")))
    assert "more than 50 wrong signatures a second" in said
    assert "more than 50 wrong signatures a second" in rig.refusal(guesser, send("orders", right))
    assert rig.refusal(known, send("orders", right)) == ""
    assert "more than 50 wrong signatures a second" in rig.refusal(
        known, send("orders", Credentials("root", "root-secret"))
    )


HALF_MADE: dict[str, tuple[dict[str, str | None], str]] = {
    "no signature": ({"Signature": None}, "check signature failed."),
    "an empty signature": ({"Signature": ""}, "check signature failed."),
    "half a signature": ({"Signature": "q2Vjcm"}, "check signature failed."),
    "no base64": ({"Signature": "\u00e9\u4e16\U0001f600"}, "check signature failed."),
    "a long signature": ({"Signature": "A" * 100_000}, "check signature failed."),
    "an empty key": ({"AccessKey": ""}, "User: is not found."),
    "another key": ({"AccessKey": "root"}, "check signature failed."),
    "a long key": ({"AccessKey": "a" * 100_000}, f"User:{'a' * 64} is not found."),
    "an unprintable key": ({"AccessKey": "alice\0"}, "is not found."),
    "a key in other letters": ({"AccessKey": "Alice"}, "User:Alice is not found."),
    "no key": ({"AccessKey": None}, "username cannot be null."),
    "another field": ({"tag": "more"}, "check signature failed."),
    "a token of its own": ({"SecurityToken": "more"}, "check signature failed."),
}


@pytest.mark.parametrize("kind", [JSON, BINARY])
@pytest.mark.parametrize("name", HALF_MADE)
def test_half_made_signatures(name: str, kind: int) -> None:
    """Each is refused in words; none raises, and none is taken for the proof of the connection."""
    changes, why = HALF_MADE[name]
    fields = {"group": "billing", "topic": "orders"}
    fields |= sign(Credentials("alice", "alice-secret"), fields)
    for field, value in changes.items():
        fields.pop(field, None)
        if value is not None:
            fields[field] = value
    encode = encode_json if kind == JSON else encode_binary
    head = encode(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, 1, 0, "", fields)
    request = decode_request(Frame(kind, memoryview(head)[PREFIX_BYTES:], b""))
    rig = Rig()
    assert why in rig.refusal(FakeConnection(), request)
    if name != "no key":  # then it is an unsigned request of the proved connection
        assert why in rig.refusal(rig.proved(ROOT), request)


def test_a_guess_costs_the_same_whoever_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One digest for a user that is there, and one for a user that is not; compared in constant time."""
    counts: dict[str, int] = {}

    def counted(name: str) -> None:
        real = getattr(hmac, name)

        def call(*arguments: Any) -> Any:
            counts[name] = counts.get(name, 0) + 1
            return real(*arguments)

        monkeypatch.setattr(hmac, name, call)

    counted("digest")
    counted("compare_digest")
    costs = []
    for user in ("alice", "nobody-there"):
        counts.clear()
        assert Rig().refusal(FakeConnection(), send("orders", Credentials(user, "wrong-secret")))
        costs.append(dict(counts))
        counts.clear()
        assert Rig().prove(FakeConnection(), User(username=user, password="wrong-secret"))
        costs.append(dict(counts))
    assert costs[0] == costs[2]
    assert costs[1] == costs[3]
    assert all(cost["compare_digest"] == 1 for cost in costs)


def test_servers_of_the_cluster_are_super_users_by_their_own_keys() -> None:
    rig = Rig(inner_access_key="inner", inner_secret_key="inner-secret")
    inner = User(username="inner", password="inner-secret")
    assert rig.refusal(rig.proved(inner), append("anything")) == ""
    rig.table.replace(rig.table.contents.with_user(msgspec.structs.replace(ALICE, username="inner")))
    assert rig.refusal(FakeConnection(), send("x", Credentials("inner", "alice-secret"))) == "check signature failed."


def test_white_lists() -> None:
    rig = Rig(authentication_whitelist="10", authorization_whitelist="310, 30310")
    assert rig.refusal(FakeConnection(), send("anything", None)) == ""
    assert rig.refusal(rig.proved(), append("anything")) == ""
    assert "cannot be null" in rig.refusal(FakeConnection(), append("anything"))


def test_without_authorization_each_known_user_may_do_everything() -> None:
    rig = Rig(authorization_enabled=False)
    assert rig.refusal(rig.proved(), append("anything")) == ""
    assert "cannot be null" in rig.refusal(FakeConnection(), append("anything"))


def test_what_a_peer_can_fill_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions, failures by address, verdicts and denials."""
    rig = Rig()
    monkeypatch.setattr("pocketmq.auth.guard.SESSIONS_MAX", 3)
    monkeypatch.setattr("pocketmq.auth.guard.HOSTS_MAX", 3)
    monkeypatch.setattr("pocketmq.auth.session.VERDICTS_MAX", 3)
    right, wrong = Credentials("alice", "alice-secret"), Credentials("alice", "wrong")
    for number in range(10):
        connection = FakeConnection(f"10.0.0.{number}")
        assert rig.refusal(connection, send("orders", right)) == ""
        assert rig.refusal(connection, send("orders", wrong)) == "check signature failed."
    assert len(rig.guard.sessions) <= 3
    assert len(rig.guard.failures) == 3
    alice = rig.proved()
    for number in range(1_100):
        assert rig.refusal(alice, append(f"topic-{number}")) != ""
    assert len(alice.session.verdicts) <= 3
    assert len(rig.denials.entries) == DENIALS_MAX
    assert rig.denials.entries[-1].resource == "Topic:topic-1099"
    assert rig.refusal(alice, append("topic-1099")) != ""
    assert rig.denials.entries[-1].count == 2


def test_names_without_end_of_one_user_at_many_addresses_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that their connections keep, and the server not any more, count as well."""
    monkeypatch.setattr("pocketmq.auth.guard.SESSIONS_MAX", 2)
    monkeypatch.setattr("pocketmq.auth.session.ALL_VERDICTS_MAX", 20)
    rig = Rig()
    connections = [rig.proved(host=f"10.0.0.{number}") for number in range(5)]
    for number in range(10):
        for connection in connections:
            assert "Topic:topic-" in rig.refusal(connection, append(f"topic-{number}"))
            assert sum(len(each.session.verdicts) for each in connections) <= 20
    assert rig.refusal(connections[0], append("orders")) == ""
    assert 0 < rig.guard.remembered.count <= 20


def test_a_name_longer_than_any_policy_has_is_not_remembered() -> None:
    """A header has room for names of 64 KiB."""
    rig = Rig()
    alice = rig.proved()
    for number in range(10):
        assert rig.refusal(alice, append(f"{number}" + "x" * 255)) != ""
    assert not alice.session.verdicts
    assert rig.refusal(alice, append("x" * 255)) != ""
    assert len(alice.session.verdicts) == 1


def test_a_verified_certificate_names_the_user() -> None:
    """A name that no user has is nobody; a disabled user is refused."""
    rig = Rig()
    alice, carol = FakeConnection(), FakeConnection()
    alice.peer_name, carol.peer_name = "alice", "carol"
    assert rig.refusal(alice, append("orders")) == ""
    assert (alice.session.how, rig.proved().session.how) == ("certificate", "proof")
    assert "Topic:payments" in rig.refusal(alice, append("payments"))
    assert "username cannot be null." in rig.refusal(carol, append("orders"))
    disabled = msgspec.structs.replace(ALICE, user_status=UserStatus.DISABLE)
    rig.table.replace(rig.table.contents.with_user(disabled))
    assert rig.refusal(alice, append("orders")) == "User:alice is disabled."
    assert "username cannot be null." in rig.refusal(alice, append("orders"))


def test_a_producer_may_ask_which_brokers_make_a_topic() -> None:
    """Before its first message to a topic that does not exist."""
    rig = Rig()
    alice = rig.proved()

    def route(topic: str) -> str:
        header = GetRouteInfoRequestHeader(topic=topic)
        return rig.refusal(alice, received(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, kind=JSON))

    assert route("orders") == ""
    assert route("TBW102") == ""
    assert "Topic:payments" in route("payments")
    assert "Topic:TBW102" in rig.refusal(alice, append("TBW102"))
    stranger = received(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="TBW102"))
    assert "username cannot be null." in rig.refusal(FakeConnection(), stranger)


def pull(group: str, *topics: str) -> Request:
    queues = [(topic, number, 0) for number, topic in enumerate(topics)]
    header = NativePullRequestHeader(
        consumer_group=group, queues=queues, max_bytes=1, max_messages=1, suspend_timeout_millis=0
    )
    return received(RequestCode.NATIVE_PULL, header)


def test_a_pull_like_one_that_was_let_in_passes_until_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another group, topic or user is decided by itself; after a change of policies all are."""
    rig = Rig()
    alice = rig.proved()
    assert rig.refusal(alice, pull("billing", "orders", "orders")) == ""
    decided: list[Any] = []
    check = rig.guard._check

    def counted(connection: Any, request: Request) -> None:
        decided.append(request)
        check(connection, request)

    monkeypatch.setattr(rig.guard, "_check", counted)
    again = pull("billing", "orders")
    assert rig.refusal(alice, again) == ""
    assert not decided
    assert again.session is alice.session
    assert "Group:other" in rig.refusal(alice, pull("other", "orders"))
    assert "Topic:payments" in rig.refusal(alice, pull("billing", "orders", "payments"))
    assert "Topic:payments" in rig.refusal(alice, pull("billing", "payments"))
    assert "Topic:payments" in rig.refusal(alice, pull("billing", "payments"))
    assert "cannot be null" in rig.refusal(FakeConnection(), pull("billing", "orders"))
    assert len(decided) == 5
    rig.table.replace(rig.table.contents.with_policies("alice", ()))
    assert "User:alice has no permission" in rig.refusal(alice, pull("billing", "orders"))
    rig.table.replace(rig.table.contents.with_policies("alice", POLICIES))
    assert rig.refusal(alice, pull("billing", "orders")) == ""
    rig.table.replace(rig.table.contents.without_user("alice"))
    assert rig.refusal(alice, pull("billing", "orders")) == "User:alice is not found."


def test_a_pop_like_one_that_was_let_in_passes_as_well() -> None:
    """And another code with the same names is decided by itself."""
    rig = Rig()
    alice = rig.proved()
    ack = AckMessageRequestHeader("billing", "orders", 0, "handle", 7)
    assert rig.refusal(alice, received(RequestCode.ACK_MESSAGE, ack, kind=JSON)) == ""
    assert (int(RequestCode.ACK_MESSAGE), "orders", "billing") in alice.session.verdicts
    assert (int(RequestCode.POP_MESSAGE), "orders", "billing") not in alice.session.verdicts
    assert rig.refusal(alice, received(RequestCode.ACK_MESSAGE, ack, kind=JSON)) == ""


def test_a_signed_pull_is_looked_at_each_time() -> None:
    rig = Rig()
    alice = rig.proved()
    right, wrong = Credentials("alice", "alice-secret"), Credentials("alice", "wrong")
    header = PullMessageRequestHeader(
        consumer_group="billing",
        topic="orders",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
    )
    for keys, says in ((None, ""), (right, ""), (wrong, "check signature failed."), (None, "")):
        assert rig.refusal(alice, received(RequestCode.PULL_MESSAGE, header, kind=JSON, keys=keys)) == says


def test_a_request_that_names_too_much_is_refused_before_all_is_decided() -> None:
    """The loop decides: names in a body, and in a field with commas."""
    rig = Rig()
    rig.table.replace(rig.table.contents.with_policies("alice", (Policy((entry_of("*", ["All"], "Allow"),)),)))
    alice = rig.proved()
    few, many = ([f"t{number}" for number in range(count)] for count in (NAMES_MAX - 1, NAMES_MAX))

    def heartbeat(topics: list[str]) -> Request:
        """Without the fields that clients fill as well: with them fewer have room."""
        group = {"groupName": "g", "subscriptionDataSet": [{"topic": topic} for topic in topics]}
        body = msgspec.json.encode({"clientID": "id", "consumerDataSet": [group]})
        return received(RequestCode.HEART_BEAT, None, body)

    assert rig.refusal(alice, heartbeat(few)) == ""
    assert "more than 5000 topics and groups" in rig.refusal(alice, heartbeat(many))
    header = GetRouteInfoRequestHeader(topic=",".join([*many, "one"]))
    assert "more than 5000" in rig.refusal(alice, received(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, kind=JSON))
