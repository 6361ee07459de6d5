"""``pocketmq trace ID``: the path of one message in order of time.

Lives here: options and output.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli import complete, options
from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.messages.message import clean
from pocketmq.cli.output import print_json, time_text
from pocketmq.cli.run import run_admin
from pocketmq.common.errors import Cause
from pocketmq.common.topics import TRACE_TOPIC

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin
    from pocketmq.client.admin.trace_path import TracePath


def trace(
    msg_id: Annotated[str, typer.Argument(metavar="ID", help="The id that the producer assigned (msg_id).")],
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            "-t",
            help="Topic of the message, if its producer did not trace it.",
            autocompletion=complete.topics,
        ),
    ] = "",
    trace_topic: Annotated[str, typer.Option("--trace-topic", help="Topic of the trace messages.")] = (TRACE_TOPIC),
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Show which group sent a message, where it was stored, which groups consumed it, and how long each step took.

    Needs producers and consumers with enable_message_trace=True (or RocketMQ's own with message trace).
    """

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.query import MessageFinder
        from pocketmq.client.admin.trace_path import find_path
        from pocketmq.client.errors import NoRoute

        try:
            path = await find_path(MessageFinder(admin), msg_id, trace_topic, topic)
        except NoRoute as error:
            raise CommandFailed(
                f"no trace of {msg_id}",
                why=f"no broker has the topic {trace_topic}",
                hint="set broker.trace_topic_enable=true, and trace its producer and consumers",
                cause=error.cause,
            ) from error
        if not path:
            failed = [each for each in path.asked if each.failed]
            said = "; ".join(
                f"{each.broker_name or each.what}: {each.remark or 'nothing there'}" for each in path.asked[:20]
            )
            raise CommandFailed(
                f"no trace of {msg_id}",
                why=said or "no broker was asked",
                hint="trace its producer and consumers (enable_message_trace=True); a trace takes a moment to arrive, "
                "and ends with the retention of the trace topic",
                cause=Cause.CONNECTION if failed and len(failed) == len(path.asked) else Cause.BAD_REQUEST,
            )
        if as_json:
            print_json(_fields(path))
        else:
            _print(path)

    run_admin(namesrv, body)


def _steps(path: "TracePath") -> list[tuple[int, str, str]]:
    """Return (time, what, details) of every step, in order of time; steps of the same time in path order."""
    steps: list[tuple[int, int, str, str]] = []
    for send in path.sends:
        ok = "stored" if send.success else "stored, but not as safely as requested"
        where = f" at {clean(send.store_host)}" if send.store_host else ""
        details = (
            f"group {clean(send.group)}  topic {clean(send.topic)}  {send.body_bytes:,} bytes  "
            f"{ok}{where} after {send.cost_ms} ms"
        )
        steps.append((send.timestamp_ms, 0, "sent", details))
    for message in path.stored:
        details = f"{clean(message.broker_name)}  queue {message.queue_id}  offset {message.queue_offset:,}"
        steps.append((message.store_timestamp, 1, "stored", f"{details}  {message.offset_msg_id}"))
    for each in path.consumptions:
        before, after = each.before, each.after
        again = f"  try {before.retry_times + 1}" if before is not None and before.retry_times else ""
        if after is None:
            end = "no end was traced: the handler runs, or its consumer was killed"
        else:
            end = f"{'done' if after.success else 'failed'} after {after.cost_ms} ms"
        steps.append((each.began_ms, 2, "consumed", f"group {clean(each.group) or '?'}{again}  {end}"))
    return [(at_ms, what, details) for at_ms, _, what, details in sorted(steps)]


def _print(path: "TracePath") -> None:
    print(f"{clean(path.msg_id)}")
    for at_ms, what, details in _steps(path):
        print(f"  {time_text(at_ms)}  {what:<8}  {details}")
    if path.is_cut:
        print("  there may be more: a key query returns the newest trace messages only")


def _fields(path: "TracePath") -> dict[str, object]:
    return {
        "msg_id": path.msg_id,
        "is_cut": path.is_cut,
        "sends": [
            {
                "timestamp": send.timestamp_ms,
                "group": send.group,
                "topic": send.topic,
                "tags": send.tags,
                "keys": send.keys,
                "store_host": send.store_host,
                "body_bytes": send.body_bytes,
                "cost_ms": send.cost_ms,
                "success": send.success,
                "offset_msg_id": send.offset_msg_id,
                "region": send.region,
            }
            for send in path.sends
        ],
        "stored": [
            {
                "timestamp": message.store_timestamp,
                "topic": message.topic,
                "broker": message.broker_name,
                "queue_id": message.queue_id,
                "queue_offset": message.queue_offset,
                "offset_msg_id": message.offset_msg_id,
            }
            for message in path.stored
        ],
        "consumptions": [
            {
                "timestamp": each.began_ms,
                "group": each.group,
                "retry_times": 0 if each.before is None else each.before.retry_times,
                "ended": each.after is not None,
                "cost_ms": None if each.after is None else each.after.cost_ms,
                "success": None if each.after is None else each.after.success,
                "context_code": None if each.after is None else each.after.context_code,
            }
            for each in path.consumptions
        ],
    }
