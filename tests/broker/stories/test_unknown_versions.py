"""Clients that announce an unknown version, in both of RocketMQ's header forms: served like any other."""

import json
import socket
import struct
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import pytest

from pocketmq.testing import PocketBroker

SEND_MESSAGE_V2, PULL_MESSAGE, HEART_BEAT, GET_CONSUMER_CONNECTION_LIST, GET_ROUTEINFO = 310, 11, 34, 203, 105
JSON, BINARY = 0, 1
OTHER_LANGUAGE = 7


class Peer:
    """One connection that says ``version``."""

    def __init__(self, address: str, form: int, version: int) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), 10)
        self._stream = self._socket.makefile("rb")
        self._form, self._version, self._opaque, self._code = form, version, 0, -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._socket.close()

    def call(self, code: int, fields: dict[str, object], body: bytes = b"") -> tuple[int, str, bytes]:
        """Return (response code, remark, body)."""
        self._opaque += 1
        header = self._json(code, fields) if self._form == JSON else self._binary(code, fields)
        kind = self._form << 24 | len(header)
        self._socket.sendall(struct.pack(">II", 4 + len(header) + len(body), kind) + header + body)
        while True:
            answered, found, remark, answer = self._read()
            if found == self._opaque and answered:  # not a request of the broker's own: the group has a new member
                return self._code, remark, answer

    def _read(self) -> tuple[bool, int, str, bytes]:
        """Return (is a response, opaque, remark, body) of the next frame; keep its code."""
        length, kind = struct.unpack(">II", self._stream.read(8))
        size = kind & 0xFFFFFF
        text, body = self._stream.read(size), self._stream.read(length - 4 - size)
        if kind >> 24 == JSON:
            found = json.loads(text)
            self._code = found["code"]
            return bool(found["flag"] & 1), found["opaque"], found.get("remark") or "", body
        self._code, _, _, opaque, flag, remark = struct.unpack_from(">hBhiii", text)
        return bool(flag & 1), opaque, text[17 : 17 + remark].decode(), body

    def _json(self, code: int, fields: dict[str, object]) -> bytes:
        names = {name: str(value) for name, value in fields.items()}
        header = {"code": code, "language": "OTHER", "version": self._version, "opaque": self._opaque, "flag": 0}
        return json.dumps(header | {"extFields": names}).encode()

    def _binary(self, code: int, fields: dict[str, object]) -> bytes:
        pairs = b"".join(
            struct.pack(">H", len(name)) + name.encode() + struct.pack(">I", len(str(value))) + str(value).encode()
            for name, value in fields.items()
        )
        fixed = struct.pack(">hBhiii", code, OTHER_LANGUAGE, self._version, self._opaque, 0, 0)
        return fixed + struct.pack(">I", len(pairs)) + pairs


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    with PocketBroker() as running:
        yield running


CASES = [(form, version) for form in (JSON, BINARY) for version in (9999, 32_767, 0, -1)] + [(JSON, 2**31 - 1)]


@pytest.mark.parametrize(("form", "version"), CASES)
def test_a_version_nobody_knows_is_served(broker: PocketBroker, form: int, version: int) -> None:
    """Route, heartbeat, send and pull work, and the administrator's list shows the member."""
    topic, group = f"Version-{form}-{version}", f"group-{form}-{version}"
    with Peer(broker.address, form, version) as peer:
        send = {"a": "producers", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1_700_000_000_000, "h": 0}
        assert peer.call(SEND_MESSAGE_V2, send, b"hello")[0] == 0
        subscription = {"topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1}
        consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription]}  # fmt: skip
        beat = {"clientID": "nobody@1", "producerDataSet": [], "consumerDataSet": [consumer]}
        assert peer.call(HEART_BEAT, {}, json.dumps(beat).encode())[0] == 0
        pull = {"consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 8, "sysFlag": 2,
                "commitOffset": 0, "suspendTimeoutMillis": 30_000, "subscription": "*", "subVersion": 1}  # fmt: skip
        code, remark, records = peer.call(PULL_MESSAGE, pull)
        assert (code, remark) == (0, "FOUND")
        assert b"hello" in records
        code, remark, body = peer.call(GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
        assert code == 0, remark
        [member] = json.loads(body)["connectionSet"]
        assert (member["clientId"], member["version"]) == ("nobody@1", version)
    with Peer(broker.namesrv, form, version) as peer:
        give_up_s = time.monotonic() + 60  # a topic's registration follows its first message
        while (answer := peer.call(GET_ROUTEINFO, {"topic": topic}))[0] != 0 and time.monotonic() < give_up_s:
            time.sleep(0.01)
    assert answer[0] == 0
    assert list(json.loads(answer[2])["brokerDatas"][0]["brokerAddrs"]) == ["0"], (
        "standard JSON, which all versions read"
    )
