"""Programs around the fragments of the pages: what a reader has by then.

Each has a line ``BLOCK``, which the fragment replaces, indented as that line is.
"""

import re
import textwrap
from typing import Final

NAMES: Final = """
import pytest
from pocketmq.client import *

BLOCK
"""

CONSUMER: Final = """
from pocketmq.client import *
from pocketmq.client.idempotence import Idempotent

consumer = PushConsumer(group="docs", namesrv="127.0.0.1:9876")
BLOCK
"""

LOOP: Final = """
import asyncio
from pocketmq.client import *

consumer = PushConsumer(group="docs", namesrv="127.0.0.1:9876")


class Stored(Exception):
    pass


async def store(message):
    raise Stored


async def main():
    try:
        BLOCK
    except Stored:
        await consumer.stop()
        print("one message")


asyncio.run(main())
"""

PULL: Final = """
import asyncio
from pocketmq.client import *


async def main():
    async with PullConsumer(group="report", namesrv="127.0.0.1:9876") as consumer:
        BLOCK


asyncio.run(main())
"""

STAGED: Final = """
import asyncio
import pyarrow as pa
from pocketmq.client import *

record_batch = pa.record_batch({"body": [b"total"]})


async def main():
    async with Producer("docs", namesrv="127.0.0.1:9876") as producer:
        await producer.send(Message("Totals", b"the topic must exist"))
    BLOCK
    assert is_first


asyncio.run(main())
"""

SPARK: Final = """
from pyspark.sql import SparkSession
from pocketmq.pipeline import register

spark = SparkSession.builder.master("local[2]").getOrCreate()
register(spark)
BLOCK
log.show()
"""

TELEMETRY: Final = """
import asyncio
from opentelemetry import propagate, trace
from pocketmq.client import *

tracer = trace.get_tracer("docs")


async def main():
    async with PullConsumer(group="docs", namesrv="127.0.0.1:9876") as consumer:
        BLOCK


asyncio.run(main())
"""

FRAMES: Final = {
    "names": NAMES,
    "consumer": CONSUMER,
    "loop": LOOP,
    "pull": PULL,
    "staged": STAGED,
    "spark": SPARK,
    "telemetry": TELEMETRY,
}


def fill(name: str, fragment: str) -> str:
    """Return the program ``name`` with the fragment in its place."""
    frame = FRAMES[name]
    found = re.search(r"^( *)BLOCK$", frame, re.MULTILINE)
    assert found is not None
    return frame[: found.start()] + textwrap.indent(fragment, found[1]) + frame[found.end() :]
