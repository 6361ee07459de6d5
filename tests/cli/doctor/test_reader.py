"""Reading brokers: a RocketMQ without our extras, a silent one, a missing one, one that answers nonsense."""

import asyncio
import contextlib
import gc
import json
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pocketmq.cli.doctor.diagnosis import examine
from pocketmq.cli.doctor.reader import BrokerReader, Target, what_to_check
from pocketmq.client.errors import NoNameServer
from pocketmq.remoting.codes import RequestCode

Answer = Callable[[int], "tuple[int, bytes] | None"]
RUNTIME = {"table": {"brokerVersionDesc": "V5_3_3", "putTps": "1.0 2.0 3.0"}}


@contextlib.asynccontextmanager
async def java_server(answer: Answer) -> AsyncIterator[str]:
    """Serve JSON frames as RocketMQ does: no announcement, unknown codes refused; with None, no answer at all."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                length, marked = struct.unpack(">II", await reader.readexactly(8))
                rest = await reader.readexactly(length - 4)
                header = json.loads(rest[: marked & 0xFFFFFF])
                answered = answer(header["code"])
                if answered is None:
                    continue
                code, body = answered
                head = {"code": code, "flag": 1, "language": "JAVA", "opaque": header["opaque"], "version": 453}
                head |= {"serializeTypeCurrentRPC": "JSON", "extFields": {"version": "{}"}}
                data = json.dumps(head).encode()
                writer.write(struct.pack(">II", 4 + len(data) + len(body), len(data)) + data + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()[:2]
        yield f"{host}:{port}"
    finally:
        server.close()


def rocketmq(code: int) -> tuple[int, bytes] | None:
    """Answer as a RocketMQ 5.3 broker and name server would."""
    if code == RequestCode.GET_BROKER_RUNTIME_INFO:
        return 0, json.dumps(RUNTIME).encode()
    if code == RequestCode.GET_BROKER_CONFIG:
        return 0, b"brokerName=broker-j\nosPageCacheBusyTimeOutMills=1000\n"
    return 3, b""


async def test_a_rocketmq_is_read_without_what_it_does_not_have() -> None:
    """It has a runtime table and settings, but no telemetry; its name comes from its settings."""
    async with java_server(rocketmq) as address, BrokerReader(timeout_ms=3000) as reader:
        reading = await reader.read(Target("", address))
    assert reading.snapshot is not None
    assert reading.settings is not None
    assert (reading.snapshot.broker, reading.snapshot.pocketmq, reading.snapshot.telemetry) == ("broker-j", False, None)
    assert reading.snapshot.runtime == RUNTIME["table"]
    assert reading.settings.number("os_page_cache_busy_timeout_mills") == 1000


async def test_settings_that_are_refused_are_no_reason_to_give_up() -> None:
    """The doctor reads the runtime table alone, and the settings are empty."""

    def answer(code: int) -> "tuple[int, bytes] | None":
        return (16, b"") if code == RequestCode.GET_BROKER_CONFIG else rocketmq(code)

    async with java_server(answer) as address, BrokerReader(timeout_ms=3000) as reader:
        reading = await reader.read(Target("b", address))
    assert reading.snapshot is not None
    assert reading.settings is not None
    assert len(reading.settings) == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pairs": 5}', '{"window_s": "x"}', "9" * 400])
async def test_telemetry_that_is_none_is_left_out(text: str) -> None:
    """Nonsense under our key counts as "no telemetry"; the doctor goes on."""

    def answer(code: int) -> "tuple[int, bytes] | None":
        if code == RequestCode.GET_BROKER_RUNTIME_INFO:
            return 0, json.dumps({"table": {"pocketmqTelemetry": text, "a": "b"}}).encode()
        return rocketmq(code)

    async with java_server(answer) as address, BrokerReader(timeout_ms=3000) as reader:
        reading = await reader.read(Target("b", address))
    assert reading.snapshot is not None
    assert reading.snapshot.telemetry is None
    assert reading.snapshot.runtime == {"a": "b"}


async def test_a_broker_that_does_not_answer_says_what_to_check() -> None:
    """It accepts the connection, answers the first request, and then hangs: the admin thread is stuck."""

    def answer(code: int) -> "tuple[int, bytes] | None":
        return None if code == RequestCode.GET_BROKER_RUNTIME_INFO else rocketmq(code)

    async with java_server(answer) as address, BrokerReader(timeout_ms=100) as reader:
        reading = await reader.read(Target("b", address))
    assert reading.snapshot is None
    assert reading.error is not None
    assert "does not answer" in reading.error.what
    assert "admin thread" in what_to_check(reading.error)[0]


async def test_questions_that_are_given_up_leave_nothing_for_asyncio_to_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are cancelled when the first one has failed, and asked how they ended."""
    logged: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))

    async def never(*_: object) -> None:
        await asyncio.get_running_loop().create_future()

    async def refuses(*_: object) -> None:
        await asyncio.sleep(0)
        raise NoNameServer("no runtime table")

    async with java_server(rocketmq) as address, BrokerReader(timeout_ms=1000) as reader:
        monkeypatch.setattr(reader, "_settings", never)
        monkeypatch.setattr(reader, "_runtime", refuses)
        reading = await reader.read(Target("b", address))
        assert isinstance(reading.error, NoNameServer)
        del reading
        gc.collect()
        await asyncio.sleep(0)
    assert not logged


async def test_an_answer_that_is_no_runtime_table_is_an_error() -> None:
    """A name server, for instance, refuses the code; a body that is not JSON is refused here."""

    def refused(_code: int) -> "tuple[int, bytes] | None":
        return 3, b""

    def garbage(code: int) -> "tuple[int, bytes] | None":
        return (0, b"\xff{") if code == RequestCode.GET_BROKER_RUNTIME_INFO else (3, b"")

    for answer in (refused, garbage):
        async with java_server(answer) as address, BrokerReader(timeout_ms=3000) as reader:
            reading = await reader.read(Target("b", address))
        assert reading.snapshot is None
        assert reading.error is not None


async def test_no_broker_there() -> None:
    """No process listens on the port; the advice begins with the process."""
    async with java_server(rocketmq) as address:
        pass
    async with BrokerReader(timeout_ms=3000) as reader:
        reading = await reader.read(Target("b", address))
    assert reading.error is not None
    assert "nothing listens there" in what_to_check(reading.error)[0]


async def test_targets_come_from_the_name_server_slaves_too() -> None:
    """Each address of each broker; the master keeps the plain name."""
    info: dict[str, Any] = {
        "brokerAddrTable": {
            "b": {"cluster": "c", "brokerName": "b", "brokerAddrs": {"0": "h:1", "1": "h:2"}},
            "a": {"cluster": "c", "brokerName": "a", "brokerAddrs": {"0": "h:3"}},
        },
        "clusterAddrTable": {"c": ["a", "b"]},
    }

    def answer(code: int) -> "tuple[int, bytes] | None":
        return (0, json.dumps(info).encode()) if code == RequestCode.GET_BROKER_CLUSTER_INFO else (3, b"")

    async with java_server(answer) as address, BrokerReader(timeout_ms=3000) as reader:
        assert await reader.targets(address) == [Target("a", "h:3"), Target("b", "h:1"), Target("b#1", "h:2")]


async def test_a_name_server_that_refuses_is_said_so() -> None:
    """A broker's address given as a name server is refused with a hint to --broker."""
    async with java_server(lambda _code: (3, b"")) as address, BrokerReader(timeout_ms=3000) as reader:
        with pytest.raises(NoNameServer) as caught:
            await reader.targets(address)
    assert "--broker" in caught.value.hint


@pytest.mark.parametrize("telemetry", ["{", "[" * 5000, '{"window_s":NaN}', '{"pairs":5}'])
async def test_telemetry_that_cannot_be_decoded_is_reported(telemetry: str) -> None:
    """The message says neither that the broker has none, nor that it is a RocketMQ."""
    runtime = {"table": {**RUNTIME["table"], "pocketmqTelemetry": telemetry}}

    def answer(code: int) -> tuple[int, bytes] | None:
        return (0, json.dumps(runtime).encode()) if code == RequestCode.GET_BROKER_RUNTIME_INFO else rocketmq(code)

    async with java_server(answer) as address, BrokerReader(timeout_ms=3000) as reader:
        reading = await reader.read(Target("", address))
    assert reading.snapshot is not None
    assert reading.settings is not None
    assert (reading.snapshot.telemetry, reading.snapshot.pocketmq) == (None, True)
    diagnosis = examine(reading.snapshot, reading.settings)
    assert any("cannot be decoded" in each for each in diagnosis.missing)
    assert not any("RocketMQ has no telemetry" in each for each in diagnosis.missing)


async def test_a_busy_broker_is_not_taken_for_a_name_server() -> None:
    """A refusal for lack of capacity keeps its own reason."""
    async with java_server(lambda code: (2, b"")) as address, BrokerReader(timeout_ms=3000) as reader:
        reading = await reader.read(Target("", address))
    assert reading.error is not None
    [advice] = what_to_check(reading.error)
    assert "busy" in advice
