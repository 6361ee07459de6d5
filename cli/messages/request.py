"""``pocketmq request TOPIC``: send a request, print the reply.

Lives here: options and output.
"""

import os
import sys
from typing import Annotated

import typer

from pocketmq.cli import complete, options
from pocketmq.cli.connection import given
from pocketmq.cli.run import run_async


def request(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Topic whose consumers reply.", autocompletion=complete.topics)
    ],
    message: Annotated[str, typer.Option("--message", "-m", metavar="BODY", help="Body of the request.")],
    key: Annotated[str, typer.Option("--key", help="Key of the request.")] = "",
    tags: Annotated[str, typer.Option("--tags", help="Tag of the request.")] = "",
    timeout: options.Timeout = "3s",
    former_timeout_ms: options.FormerTimeoutMs = None,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Send one request and print the body of the reply, which pocketmq reply can send by hand.

    Exit code 0 only if it arrives in time.
    """
    timeout_ms = options.timeout_ms_of(timeout, former_timeout_ms)

    async def body() -> None:
        from pocketmq.cli.message_format import json_line
        from pocketmq.client import Message, Producer

        asked = Message(topic, os.fsencode(message), keys=key, tags=tags)
        async with Producer(group="pocketmq-cli", namesrv=namesrv, **given()) as producer:
            reply = await producer.request(asked, timeout_ms=timeout_ms)
        sys.stdout.buffer.write(json_line(reply) if as_json else reply.body + b"\n")
        sys.stdout.buffer.flush()

    run_async(body())
