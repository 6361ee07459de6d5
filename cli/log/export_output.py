"""The output of ``pocketmq log export``: JSON lines, Parquet, a store without damage.

Lives here: one writer for each format.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.log.opening import BytesBar
from pocketmq.cli.log.selecting import Wanted, messages_of, safe_json_line

if TYPE_CHECKING:
    from pocketmq.store.offline.log_walk import Finding, LogChunk
    from pocketmq.store.offline.reader import StoreReader


def _note(skipped: "list[Finding]", finding: "Finding") -> None:
    if finding.kind != "tail" and len(skipped) < 100_000:
        skipped.append(finding)


def write_jsonl(reader: "StoreReader", out: str, wanted: Wanted, skipped: "list[Finding]", bar: BytesBar) -> int:
    """Write one JSON line a message to a new file or standard output; return how many."""
    count = 0
    if out == "-":
        file = sys.stdout.buffer
    else:
        _refuse_existing(out)
        file = open(out, "wb")  # noqa: SIM115
    try:
        for chunk in reader.chunks(on_finding=lambda finding: _note(skipped, finding)):
            lines = [safe_json_line(message) for message in messages_of(chunk, wanted)]
            file.write(b"".join(lines))
            count += len(lines)
            bar.advance(chunk.end - chunk.start)
    finally:
        if out != "-":
            file.close()
    return count


def write_parquet(reader: "StoreReader", out: str, wanted: Wanted, skipped: "list[Finding]", bar: BytesBar) -> int:
    """Write messages as rows of a new Parquet file; return how many."""
    from pocketmq.client.arrow.arrow import import_pyarrow, schema

    import_pyarrow()
    import pyarrow.parquet

    _refuse_existing(out)
    count = 0
    done = False
    try:
        with pyarrow.parquet.ParquetWriter(out, schema(), compression="zstd") as writer:
            for chunk in reader.chunks(on_finding=lambda finding: _note(skipped, finding)):
                batch = _batch(chunk, wanted)
                if batch is not None:
                    writer.write_batch(batch)
                    count += batch.num_rows
                bar.advance(chunk.end - chunk.start)
        done = True
    finally:
        if not done and os.path.exists(out):
            os.remove(out)  # a Parquet file without its footer cannot be read
    return count


def _batch(chunk: "LogChunk", wanted: Wanted) -> Any:
    from pocketmq.client.arrow.arrow import records_to_arrow

    columns = chunk.columns
    rows = wanted.rows(chunk)
    if rows is None or rows.all():
        return records_to_arrow(columns.buffer.data, columns.sizes, "")
    starts, sizes = columns.starts[rows].tolist(), columns.sizes[rows]
    if not starts:
        return None
    ends = (columns.starts[rows] + sizes).tolist()
    picked = b"".join(columns.buffer[start:end].tobytes() for start, end in zip(starts, ends, strict=True))
    return records_to_arrow(picked, sizes, "")


def write_log(reader: "StoreReader", out: str, wanted: Wanted, skipped: "list[Finding]", bar: BytesBar) -> int:
    """Write a new store directory with the wanted records and no damage; return how many."""
    from pocketmq.store.disk.os_file_system import OsFileSystem
    from pocketmq.store.offline.copy_store import StoreCopy

    copy = StoreCopy(reader, os.path.abspath(out), OsFileSystem(), on_finding=lambda finding: _note(skipped, finding))
    copy.run(None if wanted.is_all else wanted.rows, bar.advance)
    for text in copy.skipped:
        print(f"copied, but in no queue: {text}", file=sys.stderr)
    return copy.records


def _refuse_existing(path: str) -> None:
    if os.path.exists(path):
        raise CommandFailed("not exported", why=f"{path} exists", hint="name a file that does not exist yet")
