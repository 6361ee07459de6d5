"""Every request code, RocketMQ's and ours: served as its row of ``remoting/protocol`` says, or refused in RocketMQ's
words.

``tests/vectors/rocketmq-request-codes.txt`` holds the codes (``tests/interop/test_request_codes.py`` compares it with
the jars).
"""

import json
import socket
import struct

import pytest

from docs.tables import rocketmq_codes, served_by
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.protocol.spec import Pool
from pocketmq.testing import PocketBroker

NOT_SUPPORTED = 3
UNKNOWN_CODES = (0, -1, 9, 999, 29_999, 32_767, 70_000, 2**31 - 1)
SENT_TO_CLIENTS = {39, 40, 220, 221, 307, 309, 326}
"""Requests from a broker to a client; 307 and 309 also go to the broker, which passes them on."""


def answers_of(address: str, codes: list[int]) -> dict[int, tuple[int, str]]:
    """Send each code without any field, with RocketMQ's JSON header; return code → (response code, remark)."""
    host, port = address.rsplit(":", 1)
    answers: dict[int, tuple[int, str]] = {}
    with socket.create_connection((host, int(port)), 10) as connection, connection.makefile("rb") as stream:
        for opaque, code in enumerate(codes):
            header = {"code": code, "language": "JAVA", "version": 409, "opaque": opaque, "flag": 0, "extFields": {}}
            text = json.dumps(header).encode()
            connection.sendall(struct.pack(">II", 4 + len(text), len(text)) + text)
        while len(answers) < len(codes):
            length, header_length = struct.unpack(">II", stream.read(8))
            answer = json.loads(stream.read(header_length))
            stream.read(length - 4 - header_length)
            answers[codes[answer["opaque"]]] = (answer["code"], answer.get("remark") or "")
    return answers


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[int, tuple[int, str]]]:
    """The answers of broker and name server to every code of RocketMQ, to ours, and to unknown ones."""
    codes = [*dict.fromkeys([*rocketmq_codes(), *map(int, RequestCode)]), *UNKNOWN_CODES]
    with PocketBroker() as broker:
        return {"broker": answers_of(broker.address, codes), "name server": answers_of(broker.namesrv, codes)}


def test_what_is_not_served_is_refused_in_rocketmqs_words(answers: dict[str, dict[int, tuple[int, str]]]) -> None:
    """REQUEST_CODE_NOT_SUPPORTED has RocketMQ's text; no other answer, and no connection ends."""
    for server, of_server in answers.items():
        for code, (answer, remark) in of_server.items():
            if answer == NOT_SUPPORTED:
                assert remark.startswith(f" request type {code} not supported"), (server, code, remark)
        assert all(of_server[code][0] == NOT_SUPPORTED for code in UNKNOWN_CODES), server


def test_our_names_are_rocketmqs() -> None:
    """A code of RocketMQ has RocketMQ's name."""
    known = rocketmq_codes()
    for code in RequestCode:
        if code < 30_000:
            assert known[code][0] == code.name


def test_the_rows_say_who_serves_each_code(answers: dict[str, dict[int, tuple[int, str]]]) -> None:
    """The tables of the pages, and later access control, are made from these rows."""
    said, expected = {}, {}
    for code in dict.fromkeys([*rocketmq_codes(), *map(int, RequestCode)]):
        by = [server for server in ("broker", "name server") if answers[server][code][0] != NOT_SUPPORTED]
        if code in SENT_TO_CLIENTS:
            by.append("client")
        expected[code] = ", ".join(by) or "refused"
        said[code] = served_by(PROTOCOL.get(code))
    assert expected.pop(RequestCode.AUTHENTICATE) == "refused", "these servers know no users"
    assert said.pop(RequestCode.AUTHENTICATE) == "broker, name server"
    assert said == expected


def test_every_pair_of_the_rows_is_a_pair_of_the_broker() -> None:
    """A pool without a pair would silently send its codes to the default one."""
    with PocketBroker() as broker:
        table = broker.app.request_table
        for code, spec in PROTOCOL.items():
            if spec.pool.is_of_broker:
                assert table.pair_for(code).name == spec.pool.value, spec.code
        assert {pair.name for pair in table.executors()} == {pool.value for pool in Pool if pool.is_of_broker}
