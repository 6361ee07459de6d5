"""Every request code of RocketMQ 4.9.8 and 5.3.3: served, or refused in RocketMQ's words; and the table of them all.

``tests/vectors/rocketmq-request-codes.txt`` holds the codes (``tests/interop/test_request_codes.py`` compares it with
the jars).
"""

import json
import re
import socket
import struct
from pathlib import Path

import pytest

from pocketmq.remoting.codes import RequestCode
from pocketmq.testing import PocketBroker

ROOT = Path(__file__).parents[3]
CODES_FILE = ROOT / "tests" / "vectors" / "rocketmq-request-codes.txt"
TABLE = ROOT / "docs" / "compatibility.md"
NOT_SUPPORTED = 3
UNKNOWN_CODES = (0, -1, 9, 999, 29_999, 32_767, 70_000, 2**31 - 1)
SENT_TO_CLIENTS = {39, 40, 220, 221, 307, 309, 326}
"""What a broker asks of a client; 307 and 309 are also asked of the broker, which passes them on."""


def rocketmq_codes() -> dict[int, tuple[str, list[str]]]:
    """Return code → (name, versions)."""
    lines = [line.split() for line in CODES_FILE.read_text().splitlines()]
    return {int(code): (name, versions) for code, name, *versions in lines}


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
    """What broker and name server answer to every code of RocketMQ, and to some of nobody."""
    codes = [*rocketmq_codes(), *UNKNOWN_CODES]
    with PocketBroker() as broker:
        return {"broker": answers_of(broker.address, codes), "name server": answers_of(broker.namesrv, codes)}


def test_what_is_not_served_is_refused_in_rocketmqs_words(answers: dict[str, dict[int, tuple[int, str]]]) -> None:
    """REQUEST_CODE_NOT_SUPPORTED begins with RocketMQ's text; nothing is answered otherwise, and no connection ends."""
    for server, of_server in answers.items():
        for code, (answer, remark) in of_server.items():
            if answer == NOT_SUPPORTED:
                assert remark.startswith(f" request type {code} not supported"), (server, code, remark)
        assert all(of_server[code][0] == NOT_SUPPORTED for code in UNKNOWN_CODES), server


def test_our_names_are_rocketmqs() -> None:
    """A code that RocketMQ has is called as RocketMQ calls it."""
    known = rocketmq_codes()
    for code in RequestCode:
        if code < 30_000:
            assert known[code][0] == code.name


def test_the_table_names_every_code_and_says_what_is_true(answers: dict[str, dict[int, tuple[int, str]]]) -> None:
    """docs/compatibility.md: one row a code, its versions, who serves it."""
    section = TABLE.read_text().split("## Request codes\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (\d+) \| `([A-Z_0-9]+)` \| ([^|]*) \| ([^|]*) \|", section, re.MULTILINE)
    said = {int(code): (name, versions.split(", "), by.strip()) for code, name, versions, by in rows}
    assert len(rows) == len(said), "no code twice"
    expected = {}
    for code, (name, versions) in rocketmq_codes().items():
        by = [server for server in ("broker", "name server") if answers[server][code][0] != NOT_SUPPORTED]
        if code in SENT_TO_CLIENTS:
            by.append("client")
        expected[code] = (name, versions, ", ".join(by) or "refused")
    assert said == expected
