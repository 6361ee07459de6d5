"""Everything that a stranger, and a user without any right, can ask of a protected broker and name server.

Each request code, in all three header forms, with every name that may slip through: all are refused by the guard, or
cannot harm. A new code is tried by itself.
"""

import asyncio
import contextlib
import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from pocketmq.auth.users import User
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.codec import decode_response_of, encode_request
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frame import BINARY, JSON, MSGPACK, Frame
from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.protocol.acl import AuthLogBody, AuthLogRequestHeader
from pocketmq.remoting.protocol.authenticate import AuthenticateRequestHeader
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.namesrv import GetRouteInfoRequestHeader
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader
from pocketmq.remoting.protocol.spec import Pool, Spec
from pocketmq.remoting.security.credentials import Credentials
from pocketmq.remoting.security.proof import client_proof
from pocketmq.remoting.security.signature import sign
from pocketmq.remoting.string_map import WRITERS
from pocketmq.store.ha.proved_transport import PREFACE
from pocketmq.store.ha.wire import PREAMBLE, Hello, encode_hello
from tests.broker.conftest import Harness, eventually
from tests.broker.stories.test_access_control import AUTH, Protected

R = RequestCode
NO_PERMISSION = int(ResponseCode.NO_PERMISSION)
NOT_SUPPORTED = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
NOBODY = Credentials("nobody", "nobody-secret")
USER = User(username="nobody", password="nobody-secret")
ALICE = Credentials("alice", "alice-secret")
"""She may send to and read ``orders``, and consume as ``group``."""
NAMES: Final = ("", ",", " , ", "*", "orders", "%RETRY%group", "%RETRY%", "DefaultCluster", "\u202eorders")
NAMES_OF_OTHERS: Final = (
    *("payments", "others", "%RETRY%others", "orders,payments", "payments,orders", "orders,", ",", "ORDERS", "orders "),
    *("orders\0", "*", "ord*", "orders*", "DefaultCluster", "%DLQ%group", "%RETRY%group,others"),
)
HARMLESS: Final = {
    R.WHOAMI: "says who one is",
    R.UNREGISTER_CLIENT: "ends groups of its own connection",
    R.HEART_BEAT: "without a consumer it registers its own connection as a producer",
    R.VIEW_MESSAGE_BY_ID: "the handler checks the stored topic",
    R.END_TRANSACTION: "the handler checks the stored topic",
    R.NATIVE_END_TRANSACTION: "the handler checks the stored topic",
    R.STAGED_TRANSACTION_END: "the handler checks the stored topics",
    R.RESUME_CHECK_HALF_MESSAGE: "the handler checks the stored topic",
    R.UPDATE_AND_CREATE_TOPIC_LIST: "an empty list",
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: "an empty list",
    R.NATIVE_PULL: "no queue and no group",
    R.BATCH_ACK_MESSAGE: "an empty list",
}
"""Codes that a user without rights may send, and why; others are refused whatever they name."""
BODIES: Final[tuple[Callable[[str], bytes], ...]] = (
    lambda name: b"",
    lambda name: b"{}",
    lambda name: json.dumps(
        {
            "clientID": "c",
            "producerDataSet": [],
            "consumerDataSet": [{"groupName": name, "subscriptionDataSet": [{"topic": name, "subString": "*"}]}],
            "group": name,
            "consumerGroup": name,
            "clientId": "c",
            "topic": name,
            "namespace": "",
            "subscriptionData": {"topic": name, "subString": "*"},
            "mqSet": [{"topic": name, "brokerName": "b", "queueId": 0}],
            "topicConfigList": [{"topicName": name}],
            "groupName": name,
            "groupConfigList": [{"groupName": name}],
            "acks": [{"c": name, "t": name}],
        }
    ).encode(),
)
"""No body, an empty one, and one that names the same in each field that is checked."""
SPECS: Final = [spec for spec in PROTOCOL.values() if spec.pool not in (Pool.CLIENT, Pool.CONNECTION)]


def header_of(spec: Spec, name: str) -> Any:
    """Return a header that names ``name`` everywhere, and zeros."""
    if spec.request is None:
        return None
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(spec.request):
        given: tuple[Any, ...] = (name, 0, False, [(name, 0, 1)], [(name, 0, 0, 1)], [(name, 0, 0, 1, 1)], [], {})
        for value in given:
            try:
                values[field.name] = msgspec.convert(value, field.type)
                break
            except msgspec.ValidationError:
                continue
        else:
            raise AssertionError(f"{spec.request.__name__}.{field.name}: no value for {field.type}")
    return spec.request(**values)


@pytest.fixture
async def protected(harness: Harness, tmp_path: Path) -> Protected:
    site = await Protected(harness, tmp_path / "store").start()
    table = site.app.auth.table
    table.replace(table.contents.with_user(USER))
    return site


@pytest.fixture
async def namesrv(harness: Harness) -> Any:
    app = NamesrvApp(NamesrvConfig(listen_port=0), auth_config=AUTH, log=harness.log)
    await app.start()
    app.auth.table.replace(app.auth.table.contents.with_user(USER))
    yield app
    await app.stop()


class Peer:
    """A connection that sends whatever frame it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.opaque = 0
        self.sent: list[bytes] = []

    @classmethod
    async def connect(cls, address: str) -> "Peer":
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def send(self, code: int, header: Any, body: bytes, form: int, user: Credentials | None = None) -> None:
        """Send one request; ``user`` signs it."""
        self.opaque += 1
        extra = None
        if user is not None and form != MSGPACK:
            extra = sign(user, {} if header is None else WRITERS[type(header)](header), body)
        self.send_again(b"".join(encode_request(code, self.opaque, header, body, serialize_type=form, extra=extra)))

    def send_again(self, frame: bytes) -> None:
        """Send a frame as it was recorded."""
        self.sent.append(frame)
        self._writer.write(frame)

    async def ask(self, code: int, header: Any, body: bytes, form: int) -> Any:
        self.send(code, header, body, form)
        return await self.answer(code)

    async def answer(self, code: int) -> Any:
        length, mark = struct.unpack(">II", await self._reader.readexactly(8))
        header = await self._reader.readexactly(mark & 0xFFFFFF)
        body = await self._reader.readexactly(length - 4 - len(header))
        return decode_response_of(Frame(mark >> 24, memoryview(header), memoryview(body)), lambda opaque: code)

    async def prove(self, user: Credentials) -> None:
        """Prove the user of this connection, as PocketMQ's clients do."""
        hello = await self.ask(R.HELLO, None, b"", MSGPACK)
        nonce = json.loads(hello.extra["_pmq"])["nonce"]
        proof = client_proof(user.secret_key, user.access_key, nonce, "n" * 16)
        header = AuthenticateRequestHeader(user=user.access_key, nonce="n" * 16, proof=proof)
        assert (await self.ask(R.AUTHENTICATE, header, b"", MSGPACK)).code == 0

    def close(self) -> None:
        self._writer.close()


def watch(guard: Any) -> list[RequestCode]:
    """Return a list that gets the code of each request that the guard lets through."""
    passed: list[RequestCode] = []
    refusal = guard.refusal

    def watched(connection: Any, request: Any) -> Any:
        error = refusal(connection, request)
        if error is None:
            passed.append(RequestCode(request.code))
        return error

    guard.refusal = watched
    return passed


async def try_everything(address: str, form: int, user: Credentials | None, names: Sequence[str] = NAMES) -> None:
    """Send each code with each name and a few bodies."""
    peer = await Peer.connect(address)
    if user is not None and form == MSGPACK:
        await peer.prove(user)
    for spec in SPECS:
        bodies = BODIES if spec.body is not None else BODIES[:1]
        asked = [(header_of(spec, name), body(name)) for name in names for body in bodies]
        for header, body in asked:
            peer.send(spec.code, header, body, form, user)
        for _ in asked:
            answer = await peer.answer(spec.code)
            if user is None:
                assert answer.code in (NO_PERMISSION, NOT_SUPPORTED), (spec.code, answer)
    peer.close()


@pytest.mark.parametrize("form", [JSON, BINARY, MSGPACK])
async def test_a_stranger_gets_nothing_from_the_broker(protected: Protected, form: int) -> None:
    passed = watch(protected.app.auth.guard)
    await try_everything(protected.app.address, form, None)
    assert passed == []


@pytest.mark.parametrize("form", [JSON, BINARY, MSGPACK])
async def test_a_stranger_gets_nothing_from_the_name_server(namesrv: NamesrvApp, form: int) -> None:
    passed = watch(namesrv.auth.guard)
    await try_everything(namesrv.address, form, None)
    assert passed == []


@pytest.mark.parametrize("form", [JSON, BINARY, MSGPACK])
async def test_a_user_without_rights_gets_nothing_from_the_broker(protected: Protected, form: int) -> None:
    passed = watch(protected.app.auth.guard)
    await try_everything(protected.app.address, form, NOBODY)
    assert set(passed) <= set(HARMLESS), set(passed) - set(HARMLESS)
    assert R.WHOAMI in passed, "the user is known"
    assert "orders" not in protected.app.topics.snapshot()[0]


@pytest.mark.parametrize("form", [JSON, BINARY, MSGPACK])
async def test_a_user_gets_nothing_of_others(protected: Protected, form: int) -> None:
    """With rights for one topic and one group: no other spelling, and no list, leads to what belongs to others."""
    passed = watch(protected.app.auth.guard)
    await try_everything(protected.app.address, form, ALICE, NAMES_OF_OTHERS)
    assert set(passed) <= set(HARMLESS), set(passed) - set(HARMLESS)


@pytest.mark.parametrize("form", [JSON, BINARY, MSGPACK])
async def test_a_user_without_rights_gets_nothing_from_the_name_server(namesrv: NamesrvApp, form: int) -> None:
    """RocketMQ registers a broker without a cluster for everybody."""
    passed = watch(namesrv.auth.guard)
    await try_everything(namesrv.address, form, NOBODY)
    assert set(passed) <= set(HARMLESS), set(passed) - set(HARMLESS)
    assert not namesrv.routes.addresses()


async def test_the_name_server_keeps_its_last_refusals(namesrv: NamesrvApp, harness: Harness) -> None:
    """For ``pocketmq acl log``, counted by kind, and in its log."""
    peer = await Peer.connect(namesrv.address)
    header = GetRouteInfoRequestHeader(topic="orders")
    assert (await peer.ask(R.GET_ROUTEINFO_BY_TOPIC, header, b"", JSON)).code == NO_PERMISSION
    await peer.prove(NOBODY)
    assert (await peer.ask(R.GET_ROUTEINFO_BY_TOPIC, header, b"", MSGPACK)).code == NO_PERMISSION
    await peer.prove(Credentials("root", "root-secret"))
    answer = await peer.ask(R.AUTH_LOG, AuthLogRequestHeader(10), b"", MSGPACK)
    denials = decode_body(answer.body, AuthLogBody).denials
    assert [(each.user, each.address, each.code, each.resource) for each in denials] == [
        ("nobody", "127.0.0.1", 105, "Topic:orders"),
        ("", "127.0.0.1", 105, ""),
    ]
    assert namesrv.auth.denials.counts == {"user": 1, "policy": 1, "flood": 0}
    refused = [str(event) for event in harness.log.events if event["event"] == "request_refused"]
    assert any("username cannot be null." in event for event in refused), refused
    peer.close()


async def test_a_recorded_native_session_opens_nothing_again(protected: Protected) -> None:
    """Whoever has read all frames of a connection cannot send them again: the next one has another nonce."""
    table = protected.app.auth.table
    root = await protected.client("root", "root-secret")
    await root.put(b"0", topic="orders")
    victim = await Peer.connect(protected.app.address)
    await victim.prove(ALICE)
    message = root.record("orders", b"once")
    header = NativeAppendRequestHeader("producers", True, [("orders", 0, 1)], 3_000)
    assert (await victim.ask(R.NATIVE_APPEND, header, len(message).to_bytes(4, "big") + message, MSGPACK)).code == 0
    victim.close()
    recorded = victim.sent
    assert len(recorded) == 3
    queue = await eventually(lambda: protected.app.store.consume_queues.get("orders", 0))
    await eventually(lambda: queue.max_offset == 2)
    codes = [R.HELLO, R.AUTHENTICATE, R.NATIVE_APPEND]
    for places in ((0, 1, 2), (1, 2), (2,), (0, 2)):
        thief = await Peer.connect(protected.app.address)
        for place in places:
            thief.send_again(recorded[place])
        answers: list[int] = []
        with contextlib.suppress(asyncio.IncompleteReadError):  # a wrong proof ends the connection
            for place in places:
                answers.append((await thief.answer(codes[place])).code)  # noqa: PERF401
        assert NO_PERMISSION in answers, answers
        assert answers[-1] == NO_PERMISSION
        thief.close()
    thief = await Peer.connect(protected.app.address)
    await thief.prove(NOBODY)
    thief.send_again(recorded[1])
    assert (await thief.answer(R.AUTHENTICATE)).code == NO_PERMISSION, "and a session of another user changes nothing"
    thief.close()
    assert queue.max_offset == 2
    assert table.contents.users.keys() == {"root", "alice", "nobody"}


SLAVE: Final = Hello(
    cluster="DefaultCluster",
    broker_name="broker-a",
    broker_id=1,
    node_id="stranger",
    epochs=[],
    end_offset=0,
    min_offset=0,
    segment_bytes=8 << 20,
)
HA_GREETINGS: Final = {
    "a RocketMQ slave that has nothing": (0).to_bytes(8, "big"),
    "a RocketMQ slave": (1 << 20).to_bytes(8, "big"),
    "a PocketMQ slave": PREAMBLE + encode_hello(SLAVE),
    "half a proof": PREFACE + b"n" * 24 + b"p" * 44,
    "TLS": b"\x16\x03\x01\x02\x00\x01",
}


@pytest.mark.parametrize("who", HA_GREETINGS)
async def test_a_stranger_does_not_follow_the_log(protected: Protected, who: str) -> None:
    """Also of a broker that has no keys for its cluster: it once served every slave."""
    root = await protected.client("root", "root-secret")
    await root.put(b"not for strangers", topic="orders")
    host, _, port = protected.app._run.replication.node.ha_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(HA_GREETINGS[who])
    got = b""
    with contextlib.suppress(ConnectionError):
        got = await asyncio.wait_for(reader.read(1 << 16), 30)
        if got:
            got += await asyncio.wait_for(reader.read(1 << 16), 30)
    assert b"not for strangers" not in got
    assert len(got) <= len(PREFACE) + 24, got
    writer.close()
