"""Files of dead letters: JSON lines and Parquet.

Lives here: ``open_writer``.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pocketmq.cli.exit_codes import CommandFailed

if TYPE_CHECKING:
    from pocketmq.common.message import ReceivedMessage

ROWS: Final = 2_000
ROWS_BYTES: Final = 16 << 20
"""Bounds of a Parquet row group, which is built in memory: rows, and approximate bytes."""
Write = Callable[["ReceivedMessage"], None]


@contextmanager
def open_writer(file_format: str, path: str) -> Iterator[Write]:
    """Open a new file (``-``: standard output); yield a writer of one message. An unfinished file is removed."""
    if path != "-" and os.path.exists(path):
        raise CommandFailed("not exported", why=f"{path} exists", hint="name a file that does not exist yet")
    writer = _parquet(path) if file_format == "parquet" else _jsonl(path)
    done = False
    try:
        with writer as write:
            yield write
        done = True
    finally:
        if not done and path != "-" and os.path.exists(path):
            os.remove(path)


@contextmanager
def _jsonl(path: str) -> Iterator[Write]:
    from pocketmq.cli.log.selecting import safe_json_line

    file = sys.stdout.buffer if path == "-" else open(path, "xb")  # noqa: SIM115
    try:
        yield lambda message: (file.write(safe_json_line(message)), None)[1]
    finally:
        if path != "-":
            file.close()


@contextmanager
def _parquet(path: str) -> Iterator[Write]:
    from pocketmq.client.arrow.arrow import import_pyarrow

    pa = import_pyarrow()
    import pyarrow.parquet

    time = pa.timestamp("ms", tz="UTC")
    schema = pa.schema(
        [
            ("group", pa.string()),
            ("broker", pa.string()),
            ("queue_id", pa.int32()),
            ("queue_offset", pa.int64()),
            ("msg_id", pa.string()),
            ("offset_msg_id", pa.string()),
            ("origin_topic", pa.string()),
            ("origin_message_id", pa.string()),
            ("attempts", pa.int32()),
            ("last_error", pa.string()),
            ("born_time", time),
            ("store_time", time),
            ("keys", pa.string()),
            ("tags", pa.string()),
            ("properties", pa.map_(pa.string(), pa.string())),
            ("body", pa.binary()),
        ]
    )
    rows: list[dict[str, Any]] = []
    size_bytes = 0
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as file:

        def write(message: "ReceivedMessage") -> None:
            nonlocal size_bytes
            rows.append(_row(message))
            size_bytes += message.size_bytes
            if len(rows) == ROWS or size_bytes > ROWS_BYTES:
                flush()

        def flush() -> None:
            nonlocal size_bytes
            if rows:
                file.write_table(pa.Table.from_pylist(rows, schema=schema))
            rows.clear()
            size_bytes = 0

        yield write
        flush()


def _row(message: "ReceivedMessage") -> dict[str, Any]:
    from pocketmq.client.admin.dead_letters import last_error, origin_topic
    from pocketmq.common.message import BodyUnreadable
    from pocketmq.common.topics import DLQ_PREFIX

    try:
        body = bytes(message.body)
    except BodyUnreadable:
        body = message.raw_body
    return {
        "group": message.topic.removeprefix(DLQ_PREFIX),
        "broker": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "msg_id": message.msg_id,
        "offset_msg_id": message.offset_msg_id,
        "origin_topic": origin_topic(message),
        "origin_message_id": message.origin_message_id,
        "attempts": message.reconsume_times,
        "last_error": last_error(message),
        "born_time": message.born_timestamp,
        "store_time": message.store_timestamp,
        "keys": " ".join(message.keys),
        "tags": message.tags,
        "properties": list(message.properties.items()),
        "body": body,
    }
