"""Every refused request leaves a trace, wherever it is refused: in the log, in /metrics and in the runtime table."""

import asyncio
import json
from pathlib import Path
from typing import Any

from pocketmq.broker.request.executor import AdaptiveDrain, DrainExecutor, OneByOne
from pocketmq.broker.request.request_task import AnswerPort, Drain, Refusal, Task
from pocketmq.cli.doctor.broker_metrics import Snapshot
from pocketmq.cli.doctor.diagnosis import diagnose
from pocketmq.cli.doctor.finding import Severity
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import Cause
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import SteppedRunner
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import KVTable, decode_body, encode_body
from pocketmq.remoting.protocol.client import CheckClientBody, ConsumerGroupRequestHeader, SubscriptionData
from pocketmq.remoting.telemetry import TELEMETRY_KEY, RefusedRequestCount, decode_telemetry
from tests.broker.conftest import Harness
from tests.broker.fakes import DirectMailbox, FakeConnection, make_request

VECTORS: Any = json.loads((Path(__file__).parents[2] / "vectors" / "other-clients.json").read_text())
CPP: dict[str, dict[str, str]] = next(frames for client, frames in VECTORS.items() if client.startswith("C++"))


async def trace(client: Any) -> dict[tuple[str, int], RefusedRequestCount]:
    """Return the broker's counts by request and code."""
    response = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    telemetry = decode_telemetry(decode_body(response.body, KVTable).table[TELEMETRY_KEY])
    return {(each.request, each.code): each for each in telemetry.refused_requests}


async def say(port: int, frame: dict[str, str], *, header: str = "", body: str = "") -> dict[str, Any]:
    """Send the recorded request of another client, with changes; return the header of the answer."""
    head, content = (header or frame["header"]).encode(), (body or frame["body"]).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    size = 4 + len(head) + len(content)
    writer.write(size.to_bytes(4, "big") + len(head).to_bytes(4, "big") + head + content)
    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    writer.close()
    await writer.wait_closed()
    found: dict[str, Any] = json.loads(answer[4 : 4 + int.from_bytes(answer[1:4], "big")])
    return found


async def test_a_heartbeat_that_is_refused_is_known_to_log_telemetry_and_doctor(
    broker: Any, client: Any, harness: Harness
) -> None:
    """With the client's own data, so that an operator can find it."""
    body = CPP["HEART_BEAT"]["body"].replace('"messageModel":1', '"messageModel":7')
    for _ in range(5):
        answer = await say(broker.port, CPP["HEART_BEAT"], body=body)
        assert (answer["code"], "messageModel" in answer["remark"]) == (1, True)
    [(key, refused)] = (await trace(client)).items()
    assert key == ("HEART_BEAT", 1)
    assert (refused.language, refused.version, refused.cause) == ("CPP", "63", "codec")
    assert (refused.total, refused.last_minute, refused.group) == (5, 5, "C-cpp-tags")
    assert refused.client_id == json.loads(body)["clientID"]
    assert refused.remote.startswith("127.0.0.1:")
    [event] = [event for event in harness.log.events if event["event"] == "request_refused"]
    assert (event["level"], event["request"], event["language"]) == ("warning", "HEART_BEAT", "CPP")
    assert "$.consumerDataSet[0].messageModel" in event["why"]

    response = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    runtime = decode_body(response.body, KVTable).table
    told = decode_telemetry(runtime.pop(TELEMETRY_KEY))
    found = diagnose(Snapshot(broker="b", address="a", at_ms=1, runtime=runtime, telemetry=told), {})
    [finding] = [each for each in found if each.key.startswith("refused-")]
    assert finding.severity is Severity.ERROR
    assert finding.title.startswith("5 heartbeats of C++ clients, version 63, refused")
    assert "get nothing" in finding.title
    assert "messageModel" in finding.evidence[0]
    assert "C-cpp-tags" in finding.evidence[1]
    assert "docs/compatibility.md" in finding.cure


async def test_a_header_that_is_refused(broker: Any, client: Any, harness: Harness) -> None:
    """In the remoting layer, before any processor sees it; the client's version is known from the same header."""
    header = json.loads(CPP["SEND_MESSAGE"]["header"])
    header["extFields"]["queueId"] = "first"
    for oneway in (0, 2):
        header["flag"] = oneway
        frame = {"header": json.dumps(header), "body": "x"}
        if not oneway:
            assert (await say(broker.port, frame))["code"] == 1
        else:
            await client.connect()
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            head = frame["header"].encode()
            writer.write((4 + len(head)).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
    refused = (await trace(client))["SEND_MESSAGE", 1]
    assert (refused.total, refused.language, refused.version) == (2, "CPP", "63")
    assert "field queueId: 'first' is not a number" in refused.remark
    assert "header_illegal" not in [event["event"] for event in harness.log.events]


async def test_each_way_to_be_refused_is_in_the_trace(client: Any) -> None:
    """An unknown code, a filter, a send, a pull, an administrator's mistake."""
    subscription = SubscriptionData("T", "a ==", expression_type="SQL92")
    checked = await client.ask(
        RequestCode.CHECK_CLIENT_CONFIG, None, encode_body(CheckClientBody("c", "g", subscription))
    )
    assert checked.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert (await client.ask(RequestCode.QUERY_BROKER_OFFSET)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert (await client.ask(31_999)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert (await client.send("T", properties="TAGS\x01" + "x" * 40_000)).code == ResponseCode.MESSAGE_ILLEGAL
    await client.put(b"x")
    assert (await client.pull("T", queue_id=99)).code == ResponseCode.INVALID_PARAMETER
    group = b'{"groupName":"a b"}'
    assert (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)).code == 29
    assert {key: each.total for key, each in (await trace(client)).items()} == {
        ("CHECK_CLIENT_CONFIG", 23): 1,
        ("QUERY_BROKER_OFFSET", 3): 1,
        ("unknown", 3): 1,
        ("SEND_MESSAGE_V2", 13): 1,
        ("PULL_MESSAGE", 29): 1,
        ("UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", 29): 1,
    }


async def test_what_is_no_refusal_is_not_in_the_trace(client: Any, harness: Harness) -> None:
    """Success, a query of a group without members, a queue without messages, an offset never committed."""
    await client.put(b"x")
    group = ConsumerGroupRequestHeader("audit")
    gone = await client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, group)
    assert (gone.code, "not online" in gone.remark) == (ResponseCode.CONSUMER_NOT_ONLINE, True)
    assert (await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, group)).code == ResponseCode.SYSTEM_ERROR
    assert (await client.pull("T", offset=1)).code == ResponseCode.PULL_NOT_FOUND
    assert await trace(client) == {}
    assert [event["event"] for event in harness.log.events if event["level"] == "warning"] == []


class _Failing(OneByOne):
    def serve(self, task: Task, drain: Drain) -> None:
        if task.request.oneway:
            raise KeyError("a fault of ours")
        drain.refuse(task, Refusal(1, "no", Cause.BAD_REQUEST))


def test_an_executor_tells_of_each_refusal_and_of_nothing_else() -> None:
    """Even of oneway requests, which get no answer, and of errors in a processor."""
    direct: Any = DirectMailbox()
    heard: list[tuple[int, Cause]] = []
    runner = SteppedRunner()
    executor = DrainExecutor(
        "pair",
        _Failing(),
        count_max=10,
        size_bytes_max=1 << 20,
        threads=1,
        drain=AdaptiveDrain(10, 1 << 20),
        max_wait_ms=0,
        runner=runner,
        answers=AnswerPort(direct),
        clock=SystemClock(),
        log=CapturedLog(),
        on_refused=lambda task, refusal: heard.append((task.request.opaque, refusal.cause)),
    )
    connection: Any = FakeConnection()
    for opaque in (1, 2):
        executor.offer(Task(connection, make_request(opaque=opaque, oneway=opaque == 2), 0, 10))
    runner.run_until_idle()
    assert heard == [(1, Cause.BAD_REQUEST), (2, Cause.INTERNAL)]
