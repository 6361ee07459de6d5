"""Whatever the bytes of peers and files, a decoder raises only PocketMQ's errors, and catches all of msgspec's."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pocketmq.common.errors
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delay.delay_offsets import DelayOffsets
from pocketmq.broker.delay.timer_queue import TimerProgress
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.ha.master_address import MasterAddress
from pocketmq.broker.ha.slave_mirror import LocalCommits
from pocketmq.broker.lock.fencing_tokens import FencingTokens
from pocketmq.broker.persisted_table import PersistedTable
from pocketmq.broker.staged.staged_records import _event_start, read_event, staged_messages
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.broker.transaction.transaction_recovery import TransactionProgress
from pocketmq.cli.input import LineParser
from pocketmq.client.durable.entry import decode_kept
from pocketmq.client.durable.redis_store import _index
from pocketmq.client.pull.offsets import BroadcastOffsetFile
from pocketmq.client.trace.trace_format import decode_records
from pocketmq.common.body_codec import decompress_body
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import DECODE_ERRORS, PocketMQError
from pocketmq.common.events import NullLog
from pocketmq.common.hashes import crc32
from pocketmq.common.record import decode_properties
from pocketmq.common.record_codec import decode_record
from pocketmq.common.settings import SettingsReader
from pocketmq.namesrv.epoch_store import FILE_NAME, EpochStore
from pocketmq.pipeline.options import Options
from pocketmq.remoting.codec import decode_request, decode_response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.fastjson import standard_json
from pocketmq.remoting.frame import BINARY, JSON, MSGPACK, Frame
from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.protocol.body import Body, decode_body
from pocketmq.remoting.protocol.client import HeartbeatData
from pocketmq.remoting.protocol.offset import ResetOffsetBody
from pocketmq.remoting.protocol.relay import ConsumerRunningInfo, ConsumerStatusBody
from pocketmq.remoting.telemetry import decode_telemetry
from pocketmq.store.checkpoint import Checkpoint, Positions, StorePaths
from pocketmq.store.consumequeue.deleted_topics import DeletedTopics
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.ha import wire
from pocketmq.store.ha.epochs import EpochTable
from pocketmq.store.ha.state import HaState
from pocketmq.store.offline.small_files import read_json
from pocketmq.store.recovery.recovery import read_damage

SOURCES = Path(pocketmq.common.errors.__file__).resolve().parents[1]
FOLDERS = ("auth", "broker", "cli", "client", "common", "dashboard", "namesrv", "pipeline", "remoting", "store")
DEPTH = 100_000
DEEP = b"[" * DEPTH + b"]" * DEPTH
DEEP_PACKED = b"\x91" * DEPTH + b"\x01"

JSON_BYTES = [
    b"",
    b"\0",
    b"\xff\xfe",
    b"null",
    b"7",
    b"1e999",
    b'"\xff"',
    b'"\\udc00"',
    b"[]",
    b"{}",
    b"{",
    b'{"\xff":1}',
    b'{"a":"\xff"}',
    b'{"a":1',
    b'{"a":' + b"9" * 30 + b"}",
    b'{"a":' + b"9" * 5_000 + b"}",
    DEEP,
    b'{"a":' * DEPTH + b"1" + b"}" * DEPTH,
    b'{"unknown":' + DEEP + b"}",
]
PACKED_BYTES = [
    b"",
    b"\xc1",
    b"\xc0",
    b"\x07",
    b"\x90",
    b"\x80",
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\x81\x80\x01",
    b"\xd7\xff" + b"\xff" * 8,
    b"\x97\x01\x01\x00\x00\x00\xa1\xff\xc0",
    b"\x97\x01\x01\x00\x00\x00\xa1a" + DEEP_PACKED,
    b"\x98\x01\x01\x00\x00\x00\xa1a\xc0\x81\xa1\xff\xa1a",
    b"\x81\xa1a\xa1\xff",
    b"\x81\xa1z" + DEEP_PACKED,
    DEEP_PACKED,
]


def members(kind: type[msgspec.Struct]) -> Iterator[bytes]:
    """Give each field of a struct a value of another type."""
    for name in kind.__struct_encode_fields__:
        field = b'{"' + name.encode() + b'":'
        for value in (b'"\xff"', b'{"\xff":"\xff"}', b'["\xff"]', b'[{"\xff":1}]', DEEP, b"9" * 30, b"tru", b'{"a":[7'):
            yield field + value + b"}"


class Whole:
    """A file system in which every file has the same content."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read_all(self, path: str) -> bytes:
        return self.content

    def size(self, path: str) -> int:
        return len(self.content)

    def exists(self, path: str) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(OsFileSystem(), name)


PATHS = StorePaths("/store")


def table(make: Callable[[], Any]) -> Callable[[bytes], object]:
    return lambda data: PersistedTable(make(), "/store/config/t.json", Whole(data), NullLog()).load()


def ha_state(data: bytes) -> None:
    HaState(Whole(data), PATHS, SystemClock(), bytes).load()


def ha_state_inside(data: bytes) -> None:
    """Return the data as a file whose checksum matches."""
    ha_state(b'{"ha":' + (data or b"0") + b',"crc32":%d}' % crc32(data or b"0"))


def positions_inside(data: bytes) -> None:
    Positions.decode(b'{"positions":' + (data or b"0") + b',"crc32":%d}' % crc32(data or b"0"))


def deleted_topics(data: bytes) -> None:
    DeletedTopics(Whole(data), "/store/deleted", durable=False).load(0)


def request_header(kind: int) -> Callable[[bytes], object]:
    return lambda data: decode_request(Frame(kind, data, b""))


def response_header(kind: int) -> Callable[[bytes], object]:
    return lambda data: decode_response(Frame(kind, data, b""), RequestCode.PULL_MESSAGE)


def fields_of(code: int) -> Callable[[bytes], object]:
    """Decode the typed part of a request."""

    def decode(data: bytes) -> None:
        decode_request(Frame(MSGPACK, b"\x97" + msgspec.msgpack.encode(code) + b"\x01\x00\x00\x00\xc0" + data, b""))

    return decode


def ha_message(kind: int) -> Callable[[bytes], object]:
    def decode(data: bytes) -> None:
        wire.FrameDecoder(frozenset({kind})).feed(wire._framed(kind, data or b"\xc1"))

    return decode


def kept(data: bytes) -> None:
    decode_kept(b"\x01" + crc32(data).to_bytes(4, "big") + data)


def event(data: bytes) -> None:
    """Read ``data`` as the event of a record, with its length and checksum."""
    head = bytes(200)
    start = _event_start(head)
    read_event(head[:start] + len(data).to_bytes(4, "big") + crc32(data).to_bytes(4, "big") + data)


def one_file(load: Callable[[Path], object], tmp_path: Path, name: str) -> Callable[[bytes], object]:
    def decode(data: bytes) -> None:
        (tmp_path / name).write_bytes(data)
        load(tmp_path)

    return decode


def leaves(kind: type[Body]) -> Iterator[type[Body]]:
    """Return the bodies that travel: the classes without subclasses."""
    below = kind.__subclasses__()
    if not below:
        yield kind
    for each in below:
        yield from leaves(each)


BODIES = list(leaves(Body))


def body(kind: type[Body]) -> Callable[[bytes], object]:
    return lambda data: decode_body(data, kind)


class _Section(msgspec.Struct):
    number: int = 0


JSON_DECODERS: dict[str, Callable[[bytes], object]] = {
    "request": request_header(JSON),
    "response": response_header(JSON),
    "binary request": request_header(BINARY),
    "binary response": response_header(BINARY),
    "unknown request": request_header(9),
    "standard_json": standard_json,
    "ConsumerRunningInfo": ConsumerRunningInfo.decode,
    "ConsumerStatusBody": ConsumerStatusBody.decode,
    "telemetry": lambda data: decode_telemetry(data.decode("utf-8", "surrogateescape")),
    "topics.json": table(lambda: TopicTable(BrokerConfig(), SystemClock(), lambda: None)),
    "subscriptionGroup.json": table(lambda: SubscriptionGroups(BrokerConfig(), SystemClock())),
    "consumerOffset.json": table(lambda: ConsumerOffsets(1_000)),
    "delayOffset.json": table(DelayOffsets),
    "timerProgress.json": table(TimerProgress),
    "slaveCommits.json": table(LocalCommits),
    "masterAddress.json": table(MasterAddress),
    "fencingToken.json": table(lambda: FencingTokens(lambda: 0)),
    "transactionProgress.json": table(TransactionProgress),
    "ha.json": ha_state,
    "ha.json inside": ha_state_inside,
    "positions": Positions.decode,
    "positions inside": positions_inside,
    "checkpoint": Checkpoint.decode,
    "damage": lambda data: read_damage(Whole(data), PATHS),
    "deleted topics": deleted_topics,
    "offline": lambda data: read_json(Whole(data), "/store/x"),
    "epochs": lambda data: EpochTable.from_rows([[1, data.decode("latin-1"), 0], 7]),
    "record": decode_record,
    "properties": decode_properties,
    "zlib": lambda data: decompress_body(data, 0),
    "lz4": lambda data: decompress_body(data, 1 << 8),
    "zstd": lambda data: decompress_body(data, 2 << 8),
    "chunk": lambda data: staged_messages(data, 3, 0, ()),
    "trace": decode_records,
    "line of JSON": LineParser("T", key_field="a").parse,
    "settings": lambda data: SettingsReader({"s": _Section}).from_file("x = " + data.decode("latin-1"), "s.toml"),
    "option": lambda data: Options({"o": data.decode("latin-1")}, ("o",)).table("o"),
    **{f"body {kind.__name__}": body(kind) for kind in BODIES},
}
PACKED_DECODERS: dict[str, Callable[[bytes], object]] = {
    "request": request_header(MSGPACK),
    "response": response_header(MSGPACK),
    "HELLO": ha_message(wire.HELLO),
    "WELCOME": ha_message(wire.WELCOME),
    "REFUSED": ha_message(wire.REFUSED),
    "event": event,
    "kept message": kept,
    "lane in Redis": _index,
    **{f"fields of {code}": fields_of(code) for code, spec in PROTOCOL.items() if spec.request is not None},
}


def check(decode: Callable[[bytes], object], data: bytes) -> None:
    try:
        decode(data)
    except PocketMQError:
        pass
    except Exception as error:
        pytest.fail(f"{data[:60]!r}: {type(error).__name__}: {error}")


@pytest.mark.parametrize("name", JSON_DECODERS)
def test_a_decoder_of_json_raises_our_errors_only(name: str) -> None:
    """Bad UTF-8, 100,000 levels, cut text and wrong types."""
    for data in JSON_BYTES:
        check(JSON_DECODERS[name], data)


@pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.__name__)
def test_each_field_of_each_body_raises_our_errors_only(kind: type[Body]) -> None:
    for data in members(kind):
        check(lambda data: decode_body(data, kind), data)


@pytest.mark.parametrize("name", PACKED_DECODERS)
def test_a_decoder_of_msgpack_raises_our_errors_only(name: str) -> None:
    for data in PACKED_BYTES:
        check(PACKED_DECODERS[name], data)


@pytest.mark.parametrize("data", JSON_BYTES, ids=lambda data: repr(data[:12]))
def test_files_of_the_name_server_and_the_client(data: bytes, tmp_path: Path) -> None:
    check(one_file(lambda path: EpochStore(9, str(path), NullLog()).load(), tmp_path, FILE_NAME), data)
    check(one_file(lambda path: BroadcastOffsetFile(path).load(), tmp_path, "offsets.json"), data)


# ---- no code catches only some of them


def test_bodies_are_all_listed() -> None:
    """The bodies are found by their class: an empty list would test nothing."""
    assert {HeartbeatData, ResetOffsetBody} <= set(BODIES)
    assert len(BODIES) > 20


ALLOWED = {
    # these raise only one of them, or distinguish them before DECODE_ERRORS is caught around the call
    ("broker/persisted_table.py", "msgspec.ValidationError"): "fastjson's dialect is tried for other errors only",
    ("broker/persisted_table.py", "msgspec.DecodeError"): "as above",
    ("remoting/protocol/body.py", "msgspec.ValidationError"): "as above",
    ("remoting/protocol/body.py", "msgspec.DecodeError"): "as above",
    ("remoting/protocol/lenient.py", "msgspec.ValidationError"): "fastjson's rules are tried",
    ("common/settings.py", "msgspec.ValidationError"): "msgspec.convert of a value that is decoded already",
}
PARTS = ("msgspec", "RecursionError", "UnicodeError", "JSONDecodeError")


def named(clause: ast.expr | None) -> set[str]:
    """Return the errors that an ``except`` or a ``suppress`` names."""
    if clause is None:
        return set()
    parts = clause.elts if isinstance(clause, ast.Tuple) else [clause]
    return {ast.unparse(part) for part in parts}


def clauses(tree: ast.AST) -> Iterator[tuple[int, set[str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            yield node.lineno, named(node.type)
        elif isinstance(node, ast.Call) and "suppress" in (
            getattr(node.func, "attr", ""),
            getattr(node.func, "id", ""),
        ):
            yield node.lineno, {ast.unparse(part) for part in node.args}


def test_who_catches_a_part_of_the_decode_errors_is_named_here() -> None:
    """An ``except`` with one of them catches the whole tuple, or is listed here with its reason."""
    found, used = [], set()
    for folder in FOLDERS:
        for path in sorted((SOURCES / folder).rglob("*.py")):
            name, source = path.relative_to(SOURCES).as_posix(), path.read_text()
            if not any(part in source for part in PARTS):
                continue
            for line, errors in clauses(ast.parse(source)):
                if "*DECODE_ERRORS" in errors or "DECODE_ERRORS" in errors:
                    continue
                for error in sorted(errors):
                    if any(part in error for part in PARTS):
                        used.add((name, error))
                        if (name, error) not in ALLOWED:
                            found.append(f"{name}:{line}: except {error}")
    assert not found, "catch DECODE_ERRORS of pocketmq.common.errors:\n" + "\n".join(found)
    assert used == set(ALLOWED), "these exceptions are gone: " + str(set(ALLOWED) - used)


def test_the_tuple_has_what_msgspec_raises() -> None:
    """The test measures what the docstring of the tuple says."""
    for data, kind in ((b'"\xff"', str), (DEEP, Any), (b"[", Any), (b"7", str), (b"1e999", float)):
        with pytest.raises(DECODE_ERRORS):
            msgspec.json.decode(data, type=kind)
