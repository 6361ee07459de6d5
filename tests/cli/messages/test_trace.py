"""``pocketmq trace``, ``pocketmq request``, and how commands show compressed bodies, against a real broker."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.messages.consume import consume
from pocketmq.cli.messages.message import build_app
from pocketmq.cli.messages.request import request
from pocketmq.cli.messages.trace import trace
from pocketmq.client import Message, NoReply, Producer, PullConsumer, PushConsumer, reply_to
from pocketmq.client.blocking import Producer as BlockingProducer
from pocketmq.client.blocking import PushConsumer as BlockingConsumer
from pocketmq.client.pull.offsets import ConsumeFromWhere
from pocketmq.common.record import COMPRESSED_FLAG
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.send import SendMessageV2RequestHeader
from pocketmq.testing import PocketBroker
from tests.client.conftest import until_known

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
TEXT = b'{"order": 1, "customer": "somebody"}' * 200


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    """Start a broker with a trace topic."""
    with PocketBroker(broker={"trace_topic_enable": True}) as running:
        yield running


def run(command: "Callable[..., None] | typer.Typer", broker: PocketBroker, *arguments: object) -> Result:
    if isinstance(command, typer.Typer):
        app = command
    else:
        app = typer.Typer()
        app.command()(command)
    result = CliRunner().invoke(app, [*map(str, arguments), "--namesrv", broker.namesrv])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


async def traced_message(broker: PocketBroker) -> str:
    """Send and consume one traced message; return its id once the trace is complete."""
    consumer = PushConsumer("billing", broker.namesrv, consume_from_where=FIRST, enable_message_trace=True)
    done = asyncio.Event()

    @consumer.subscribe("Traced")
    async def handle(message: Any) -> None:
        done.set()

    async with Producer("shop", broker.namesrv, enable_message_trace=True) as producer:
        receipt = await producer.send(Message("Traced", b"hello", tags="A"))
    async with consumer, asyncio.timeout(60):
        await done.wait()
    return receipt.msg_id


def test_trace_shows_the_path_in_the_order_of_time(broker: PocketBroker) -> None:
    """Sent, stored, consumed, with groups, costs and places; the same as JSON."""
    msg_id = asyncio.run(traced_message(broker))
    head, *lines = run(trace, broker, msg_id).stdout.splitlines()
    assert head == msg_id
    assert ["sent" in lines[0], "stored" in lines[1], "consumed" in lines[2], len(lines)] == [True, True, True, 3]
    assert "group shop" in lines[0]
    assert "offset 0" in lines[1]
    assert "group billing" in lines[2]
    assert "done after" in lines[2]
    found = json.loads(run(trace, broker, msg_id, "--json").stdout)
    assert found["sends"][0]["topic"] == "Traced"
    assert found["consumptions"][0]["success"] is True
    assert found["stored"][0]["queue_offset"] == 0


def test_no_trace_says_where_was_looked(broker: PocketBroker) -> None:
    """The error names the broker, and how to record a trace."""
    with pytest.raises(CommandFailed, match="enable_message_trace") as caught:
        run(trace, broker, "0" * 32)
    assert "pocket" in caught.value.why


def test_request_prints_the_reply(broker: PocketBroker) -> None:
    """Standard output has the body of the reply; without a consumer the error gives the known facts."""
    with pytest.raises(NoReply, match="whether a consumer has seen it is not known"):
        run(request, broker, "Asked", "-m", "anybody?", "--timeout", "1500ms")
    started = threading.Event()
    consumer = BlockingConsumer("repliers", broker.namesrv, consume_from_where=FIRST)
    with BlockingProducer("replier", broker.namesrv) as producer:

        @consumer.subscribe("Asked")
        def handle(message: Any) -> None:
            if message.body == b"anybody?":
                started.set()  # no caller waits for this request any more
                return
            producer.send(reply_to(message, b"echo:" + message.body))

        with consumer:
            assert started.wait(60)
            assert run(request, broker, "Asked", "-m", "hello", "--timeout", "20s").stdout == "echo:hello\n"
            line = json.loads(run(request, broker, "Asked", "-m", "x", "--json", "--timeout", "20s").stdout)
            assert line["body"] == "echo:x"


async def send_packed(broker: PocketBroker, topic: str) -> str:
    """Store a compressed message and two with damaged bodies; return the id of the first."""
    async with Producer("p", broker.namesrv, compress_type="zlib") as producer:
        receipt = await producer.send(Message(topic, TEXT), selector=lambda queues, message: queues[0])
        queue = (await until_known(producer.instance, topic)).write_queues[0]
        connection = await producer.instance.connection(queue.broker_name, timeout_ms=30_000)
        for body, sys_flag in ((b"no zlib", COMPRESSED_FLAG), (b"after", 0)):
            header = SendMessageV2RequestHeader("p", topic, "TBW102", 4, queue.queue_id, sys_flag, 1, 0, "")
            assert (
                await connection.channel.request(RequestCode.SEND_MESSAGE_V2, header, body, timeout_ms=3000)
            ).code == 0
    async with PullConsumer("look", broker.namesrv) as consumer:  # until all three can be read
        found: list[Any] = []
        while len(found) < 3:
            found += await consumer.poll(topic, timeout_ms=5000)
    return receipt.msg_id


def test_commands_show_unpacked_bodies_and_go_on_after_a_damaged_one(
    broker: PocketBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    """``message get`` and ``consume`` unpack; a damaged body is reported, later ones are written; exit code 1."""
    msg_id = asyncio.run(send_packed(broker, "Packed"))
    assert TEXT[:100].decode() in run(build_app(), broker, "get", msg_id, "--topic", "Packed").stdout
    with pytest.raises(CommandFailed, match="1 messages not written"):
        run(consume, broker, "Packed", "--from", "earliest")
