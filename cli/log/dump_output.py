"""The output of ``pocketmq log dump``: records as text, JSON lines or hex; the other files of a store as tables.

Lives here: ``dump_records`` and ``TABLES``.
"""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
import typer

from pocketmq.cli.exit_codes import CommandFailed, ExitCode
from pocketmq.cli.log.selecting import Wanted, messages_of, safe_json_line
from pocketmq.cli.output import print_json, print_rows, printable, time_text
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import ReceivedMessage

if TYPE_CHECKING:
    from pocketmq.store.offline.log_walk import Finding
    from pocketmq.store.offline.reader import StoreReader

_BODY_SHOWN: Final = 200
_HEX_WIDTH: Final = 16


def dump_records(reader: "StoreReader", wanted: Wanted, from_offset: int, limit: int, form: str) -> None:
    """Print wanted records from a physical offset on, at most ``limit`` (0: all); exit code 1 for damage."""
    findings: list[Finding] = []

    def found(finding: "Finding") -> None:
        if finding.kind != "tail" or not reader.layout.is_open:
            findings.append(finding)
            print(f"{finding.kind}: {finding.start} to {finding.end}: {finding.why}", file=sys.stderr)

    count = 0
    for message in _messages(reader, wanted, from_offset, found):
        if form == "json":
            sys.stdout.write(safe_json_line(message).decode())
        elif form == "hex":
            _print_hex(message)
        else:
            _print_text(message)
        count += 1
        if count == limit:
            return
    if findings:
        raise typer.Exit(ExitCode.FAILED)
    if count == 0:
        end = reader.layout.end_offset
        raise CommandFailed(
            "no such record",
            why=f"the log holds offsets {reader.layout.start_offset} to {end} at most, none of its records matches",
            hint="see --what queues for topics and queue offsets",
        )


def _messages(reader: "StoreReader", wanted: Wanted, from_offset: int, found: Any) -> Iterator[ReceivedMessage]:
    """Yield the wanted records in log order; start near the first one if its queue shows where that is."""
    begin = max(from_offset, _first_offset(reader, wanted))
    for chunk in reader.chunks(on_finding=found, begin=begin):
        if chunk.end > begin:
            yield from messages_of(chunk, wanted, from_offset)


def _first_offset(reader: "StoreReader", wanted: Wanted) -> int:
    """Return a physical offset below which no wanted record lies; 0 if that is not known.

    Trusts one consume-queue entry, and only if the record there is the requested one.
    """
    if wanted.from_queue_offset is not None and len(wanted.topics) == 1 and wanted.queue_id is not None:
        queue = reader.queue(next(iter(wanted.topics)), wanted.queue_id)
        if queue is not None and wanted.from_queue_offset < queue.end_entry:
            offset = int(queue.read(wanted.from_queue_offset, 1)["offset"][0])
            record = reader.record_at(offset)
            if record is not None and int.from_bytes(record[20:28], "big") == wanted.from_queue_offset:
                return offset
    return 0


def _print_text(message: ReceivedMessage) -> None:
    note = ""
    try:
        body = bytes(message.body)
    except PocketMQError as error:
        body, note = bytes(message.raw_body), f"  (compressed, {error.why})"
    text = _text_of(body)
    shown = body[:64].hex(" ") if text is None else text[:_BODY_SHOWN]
    more = f" ... {len(body):,} bytes" if len(body) > (64 if text is None else _BODY_SHOWN) else ""
    print(
        f"{message.physical_offset:>14,}  {message.topic} queue {message.queue_id} offset {message.queue_offset:,}  "
        f"{time_text(message.store_timestamp)}  {message.size_bytes:,} bytes"
    )
    print(f"                id {printable(message.msg_id)}  from {message.born_host} at {message.store_host}")
    properties = {key: value for key, value in message.properties.items() if key != "UNIQ_KEY"}
    if properties:
        print(
            "                " + "  ".join(f"{printable(key)}={printable(value)}" for key, value in properties.items())
        )
    print(f"                {printable(shown)}{more}{note}")


def _text_of(body: bytes) -> str | None:
    """Return the start of a body as text, None if it is not text."""
    text = body[: 2 * _BODY_SHOWN].decode("utf-8", "replace").rstrip("\N{REPLACEMENT CHARACTER}")
    return text if all(char.isprintable() or char in "\r\n\t" for char in text) else None


def _print_hex(message: ReceivedMessage) -> None:
    _print_text(message)
    record = message.record
    for at in range(0, len(record), _HEX_WIDTH):
        row = record[at : at + _HEX_WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        print(f"{message.physical_offset + at:>14,}  {row.hex(' '):<{_HEX_WIDTH * 3}} {text}")


def _segments(reader: "StoreReader", as_json: bool) -> None:
    rows = []
    for segment in reader.layout.segments:
        first = reader.record_at(segment.base_offset)
        when = None
        if first is not None:
            at = 56 + (12 if first[39] & 0x10 else 0)
            when = time_text(int.from_bytes(first[at : at + 8], "big", signed=True))
        rows.append((segment.path, segment.base_offset, segment.end_offset, segment.have_bytes, when))
    print_rows(("path", "from", "to", "bytes", "first_record"), rows, as_json)


def _queues(reader: "StoreReader", as_json: bool) -> None:
    rows = []
    for queue in reader.queues():
        first, end = queue.bounds()
        entries = (queue.read(first, 1), queue.read(end - 1, 1)) if end > first else None
        offsets = (None, None) if entries is None else tuple(int(entry["offset"][0]) for entry in entries)
        rows.append((queue.topic, queue.queue_id, first, end, *offsets))
    print_rows(("topic", "queue_id", "min_offset", "max_offset", "first_physical", "last_physical"), rows, as_json)


def _index(reader: "StoreReader", as_json: bool) -> None:
    rows: list[tuple[object, ...]] = []
    for path, found in reader.index_readers():
        if isinstance(found, str):
            rows.append((path, None, None, None, None, None, None, found))
            continue
        rows.append(
            (
                path,
                found.slots,
                found.count,
                found.begin_offset,
                found.end_offset,
                time_text(found.begin_timestamp),
                time_text(found.end_timestamp),
                "",
            )
        )
        found.close()
    print_rows(("path", "slots", "entries", "from", "to", "begin", "end", "problem"), rows, as_json)


def _checkpoint(reader: "StoreReader", as_json: bool) -> None:
    found = reader.checkpoint()
    positions = reader.positions()
    rows: list[tuple[str, object]] = [("abort marker", "there" if reader.layout.is_open else "none")]
    if found is None:
        rows.append(("checkpoint", "none"))
    else:
        rows += [
            ("log durable up to", time_text(found.checkpoint.physic_ms)),
            ("queues durable up to", time_text(found.checkpoint.logics_ms)),
            ("index durable up to", time_text(found.checkpoint.index_ms)),
            ("master flushed offset", found.master_flushed_offset),
            ("confirm offset", found.confirm_offset),
        ]
    if positions is not None:
        rows += [(f"positions: {name}", value) for name, value in msgspec.structs.asdict(positions).items()]
    print_rows(("what", "value"), rows, as_json)


def _config(reader: "StoreReader", as_json: bool) -> None:
    from pocketmq.store.offline.small_files import read_json

    found = {path.rsplit("/", 1)[-1]: read_json(reader.file_system, path) for path in reader.layout.config_files}
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        print(f"== {name}")
        if value is not None:
            print(value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value)).decode())


TABLES: Final = {
    "segments": _segments,
    "queues": _queues,
    "index": _index,
    "checkpoint": _checkpoint,
    "config": _config,
}
