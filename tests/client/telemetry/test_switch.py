"""What switches OpenTelemetry on, and what it costs while it is off."""

import importlib
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import ClientInstance, ConfigError, Message, Producer, PullConsumer, PushConsumer, blocking
from pocketmq.client.producer.send_telemetry import SendTelemetry
from pocketmq.client.telemetry import PocketMQInstrumentor, Telemetry, instrument, switch, uninstrument
from pocketmq.testing.broker import PocketBroker
from tests.client.telemetry.recorder import Recorder

ROOT = Path(__file__).resolve().parents[3]
NAMESRV = "127.0.0.1:1"

SENDS = """
import asyncio, sys
from pocketmq.client import Message, Producer, PushConsumer
from pocketmq.testing.broker import consumer_settings
async def main():
    handled = asyncio.Event()
    consumer = PushConsumer("g", sys.argv[1], **consumer_settings())
    @consumer.subscribe(sys.argv[2])
    async def handle(message):
        handled.set()
    async with Producer("g", sys.argv[1]) as producer:
        await producer.send(Message(sys.argv[2], b"x"))
    async with consumer:
        await handled.wait()
asyncio.run(main())
print(sorted(name for name in sys.modules if "telemetry" in name))
"""
WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
from pocketmq.client import ConfigError, Producer
from pocketmq.client.telemetry import instrument
for switch_on in (lambda: Producer("g", "127.0.0.1:1", telemetry=True), instrument):
    try:
        switch_on()
    except ConfigError as error:
        print(error.hint)
"""


@pytest.fixture(autouse=True)
def _off_again() -> Iterator[None]:
    yield
    uninstrument()


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=True).stdout


@pytest.mark.slow
def test_nothing_of_opentelemetry_is_imported_while_it_is_off(broker: PocketBroker, topic: str) -> None:
    """Sends and handlers load the switch and the constants, and no more."""
    names = run(SENDS, broker.namesrv, topic)
    assert "opentelemetry" not in names
    assert "pocketmq.client.telemetry.spans" not in names


@pytest.mark.slow
def test_without_the_library_the_error_names_the_extra() -> None:
    assert run(WITHOUT).splitlines() == ["pip install 'pocketmq[otel]'"] * 2


def test_it_is_off_by_default() -> None:
    """A producer has its short path, a consumer the handler itself."""
    producer = Producer("g", NAMESRV)
    assert producer.instance.telemetry is None
    assert producer._short is not None

    async def handle(_: object) -> None: ...

    consumer = PushConsumer("g", NAMESRV)
    consumer.subscribe("T")(handle)
    assert consumer._topics["T"].call.handler is handle


@pytest.mark.parametrize("face", [Producer, PushConsumer, PullConsumer, blocking.Producer, blocking.PushConsumer])
def test_every_face_takes_the_argument(face: Any) -> None:
    """True is the global providers, False off; anything else is refused."""
    assert face("g", NAMESRV, telemetry=True).instance.telemetry is not None
    assert face("g", NAMESRV, telemetry=Telemetry()).instance.telemetry is not None
    instrument()
    assert face("g", NAMESRV, telemetry=False).instance.telemetry is None
    with pytest.raises(ConfigError, match="telemetry='on'"):
        face("g", NAMESRV, telemetry="on")


def test_an_instance_that_is_given_has_its_own() -> None:
    """As with credentials: what belongs to the instance is given to it."""
    with pytest.raises(ConfigError, match="telemetry= is that of the instance"):
        Producer("g", telemetry=True, instance=ClientInstance(NAMESRV))
    shared = Producer("g", instance=ClientInstance(NAMESRV, telemetry=True))
    assert isinstance(shared._chain.stages[0], SendTelemetry)


async def test_instrument_holds_for_clients_that_are_made_from_then_on(
    broker: PocketBroker, recorder: Recorder, topic: str
) -> None:
    """Until ``uninstrument``; a client keeps what it was made with."""
    before = Producer("before", broker.namesrv)
    instrument(recorder.telemetry.tracer_provider, recorder.telemetry.meter_provider)
    between = Producer("between", broker.namesrv)
    uninstrument()
    after = Producer("after", broker.namesrv)
    for producer in (before, between, after):
        async with producer:
            await producer.send(Message(topic, producer.group.encode()))
    span = recorder.one(f"send {topic}")
    assert (span.attributes or {})["messaging.client.id"] == between.instance.client_id


def test_the_entry_point_is_what_opentelemetry_instrument_loads() -> None:
    """It loads the name, makes an object of it and calls ``instrument`` with options of its own."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    module, _, name = points["opentelemetry_instrumentor"]["pocketmq"].partition(":")
    loaded = getattr(importlib.import_module(module), name)
    assert loaded is PocketMQInstrumentor
    loaded().instrument(skip_dep_check=True)
    assert switch._OfProcess.telemetry == Telemetry()
    loaded().uninstrument()
    assert Producer("g", NAMESRV).instance.telemetry is None


async def test_without_providers_messages_are_as_they_were(broker: PocketBroker, topic: str) -> None:
    """OpenTelemetry without an SDK makes no spans: nothing is carried, and nothing fails."""
    async with Producer("g", broker.namesrv, telemetry=True) as producer:
        await producer.send(Message(topic, b"x"))
        await producer.send_batch([Message(topic, b"x")] * 3)
    async with PullConsumer("look", broker.namesrv, telemetry=True) as consumer:
        found = [message async for message in consumer.stream(topic, start="earliest", stop_at_end=True)]
        await consumer.commit()
    assert len(found) == 4
    assert all("traceparent" not in message.properties for message in found)
