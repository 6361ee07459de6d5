"""``pocketmq worker`` under what ``opentelemetry-instrument`` does: its consumers make spans, in each process."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq.client import Message, Producer
from pocketmq.testing.broker import PocketBroker
from tests.cli.conftest import environment
from tests.client.telemetry.recorder import Recorder

pytestmark = pytest.mark.slow

APPLICATION = """
import os
from pocketmq.client import PushConsumer

consumer = PushConsumer("workers", os.environ["POCKETMQ_NAMESRV"], start="earliest", rebalance_interval_ms=100)

@consumer.subscribe("Jobs")
def work(message):
    pass
"""
SITE = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from pocketmq.client.telemetry import PocketMQInstrumentor

def shown(span):
    return f"{span.name} {span.context.trace_id:032x} {span.parent.span_id:016x}\\n"

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=shown)))
trace.set_tracer_provider(provider)
PocketMQInstrumentor().instrument(skip_dep_check=True)
"""
"""``opentelemetry-instrument`` starts a program with such a module, which each process of the program then imports."""


@pytest.mark.parametrize("arguments", [[], pytest.param(["--processes", "2"], marks=pytest.mark.soak)])
async def test_the_consumers_of_a_worker_make_spans(tmp_path: Path, arguments: list[str]) -> None:
    """The trace of the sender goes on in the worker, also in the processes that it starts."""
    (tmp_path / "application.py").write_text(APPLICATION)
    (tmp_path / "sitecustomize.py").write_text(SITE)
    recorder = Recorder()
    async with PocketBroker() as broker:
        async with Producer("senders", broker.namesrv, telemetry=recorder.telemetry) as producer:
            await producer.send(Message("Jobs", b"x"))
        sent = recorder.one("send Jobs").context
        path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pocketmq.cli.main", "worker", "application:consumer", *arguments),
            cwd=tmp_path,
            env=environment({"POCKETMQ_NAMESRV": broker.namesrv, "PYTHONPATH": path}),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(100):
                line = await process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert line.decode() == f"process Jobs {sent.trace_id:032x} {sent.span_id:016x}\n"
