"""``pocketmq log verify``.

Lives here: options, and the report as text.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli import options
from pocketmq.cli.exit_codes import ExitCode
from pocketmq.cli.log.opening import BytesBar, Directory, IndexNumbers, locked_by_broker, open_store
from pocketmq.cli.output import print_json, print_table, quiet_broken_pipe, time_text

if TYPE_CHECKING:
    from pocketmq.store.offline.report import FindingReport, VerifyReport

_SHOWN_MAX = 20


def verify(
    directory: Directory,
    log_only: Annotated[
        bool, typer.Option("--log-only", help="Check only the log, by group checksums: as fast as the disk.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Compare every tags code and every index entry, not one in 16.")
    ] = False,
    no_checksums: Annotated[
        bool, typer.Option("--no-checksums", help="Check every record, even where group checksums exist.")
    ] = False,
    as_json: options.Json = False,
    index_numbers: IndexNumbers = "",
) -> None:
    """Check a store: log, consume queues, index, checkpoint. Changes nothing; exit code 1 if it finds a fault.

    A broker may have the store open: records that it is writing are left out.
    """
    from pocketmq.store.offline.reader import StoreReader
    from pocketmq.store.offline.verify import verify as run

    if log_only and full:
        raise typer.BadParameter("--log-only and --full exclude each other")
    reader = open_store(directory, index_numbers, warns=False)
    if no_checksums:
        layout = reader.layout
        reader = StoreReader(reader.file_system, layout, use_checksums=False, index_numbers=reader.index_numbers)
    bar = BytesBar("verify", reader.layout.log_bytes)
    try:
        report = run(reader, level="log" if log_only else "full" if full else "normal", progress=bar.advance)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        bar.close()
        reader.close()
    if report.is_open:
        held = locked_by_broker(reader.paths.lock)
        if held is not None:
            report.notes.append(
                "a broker has it open now" if held else "no broker has it open: its next start recovers it"
            )
    with quiet_broken_pipe():
        if as_json:
            print_json(report)
        else:
            print_report(report)
    if not report.ok:
        raise typer.Exit(ExitCode.FAILED)


def print_report(report: "VerifyReport") -> None:
    """Print a report as text."""
    rate = (report.end_offset - report.start_offset) / max(report.duration_s, 1e-9) / 1e6
    print(f"{report.directory}: {report.written_by}'s files")
    size = f"{report.segments} files of {report.segment_bytes:,} bytes"
    print(f"log       offsets {report.start_offset:,} to {report.end_offset:,} in {size}")
    checked = f"{report.group_verified_bytes:,} bytes by group checksums"
    if report.walked_bytes:
        checked += f", {report.walked_bytes:,} record by record (RocketMQ's CRC covers bodies only)"
    print(f"checked   {checked}; {report.duration_s:.2f} s, {rate:,.0f} MB/s")
    _print_findings(report)
    queues, index = report.queues, report.index
    if queues is not None:
        extra = "".join(
            f", {count:,} {name}"
            for count, name in (
                (queues.blank, "blank"),
                (queues.expired, "expired"),
                (queues.superseded, "superseded"),
                (queues.pending, "not written yet"),
                (queues.damaged, "in damaged ranges"),
            )
            if count
        )
        print(f"queues    {queues.queues:,} with {queues.entries:,} entries, {queues.good:,} agree with the log{extra}")
        for each in queues.problems[:_SHOWN_MAX]:
            print(
                f"  WRONG   {each.topic} queue {each.queue_id}: {each.missing:,} missing, {each.wrong:,} wrong, "
                f"{each.beyond:,} beyond the log, {each.tags:,} with other tags; first at {each.first_offset:,}"
            )
        _left_out(len(queues.problems) + queues.problems_left_out, "queues")
    if index is not None:
        kind = "a sample" if index.is_sample else "all"
        print(
            f"index     {index.files} files with {index.entries:,} entries; {kind}: {index.checked:,} keys looked for"
        )
        if index.missing or index.wrong or index.unreachable or index.beyond:
            print(
                f"  WRONG   {index.missing:,} missing, {index.wrong:,} wrong, {index.unreachable:,} unreachable, "
                f"{index.beyond:,} beyond the log"
            )
        for text in index.unreadable[:_SHOWN_MAX]:
            print(f"  WRONG   {text}")
    for text in report.checkpoint:
        print(f"  WRONG   {text}")
    for text in report.problems[:_SHOWN_MAX]:
        print(f"  WRONG   {text}")
    _left_out(len(report.problems), "problems")
    for text in report.illegal[:_SHOWN_MAX]:
        print(f"  WRONG   {text}")
    _left_out(len(report.illegal), "illegal queues")
    for text in report.notes:
        print(f"note      {text}")
    if report.topics:
        rows = [
            (
                each.topic if each.topic.isprintable() else ascii(each.topic),
                each.records,
                each.bytes,
                time_text(each.first_ms),
                time_text(each.last_ms),
            )
            for each in report.topics
        ]
        print_table(("topic", "records", "bytes", "first", "last"), rows)
    print("ok" if report.ok else "NOT ok")


def _print_findings(report: "VerifyReport") -> None:
    for each in report.findings[:_SHOWN_MAX]:
        size = f"{each.end - each.start:,} bytes"
        print(f"  {_word(each, report.is_open)}{each.start:,} to {each.end:,} ({size}): {each.why}")
        for affected in each.affects[:_SHOWN_MAX]:
            print(
                f"          {affected.topic} queue {affected.queue_id}: {affected.messages:,} messages, offsets "
                f"{affected.first_offset:,} to {affected.last_offset:,}"
            )
    _left_out(len(report.findings) + report.findings_left_out, "ranges")


def _word(each: "FindingReport", is_open: bool) -> str:
    if each.kind == "tail":
        return "tail    " if is_open else "TAIL    "
    return "DAMAGE  " if each.kind == "damage" else "SUSPECT "


def _left_out(count: int, what: str) -> None:
    if count > _SHOWN_MAX:
        print(f"  ... {count - _SHOWN_MAX:,} more {what}; --json has up to 1,000")
