"""``archive``: a topic to Parquet, partitioned by date and hour; each run adds new messages.

Lives here: its options.
"""

from typing import Annotated, Final

import typer

from pocketmq.common.errors import ConfigError
from pocketmq.pipeline.jobs.common import command
from pocketmq.pipeline.jobs.common.command import Job


def archive(
    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic to archive.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Directory of the dataset; also on HDFS, S3 and so on.")
    ],
    by: Annotated[
        str, typer.Option("--by", help="Time for date and hour: store (of the broker) or born (of the sender).")
    ] = "store",
    starting: Annotated[
        str, typer.Option("--from", help="Start of the first run: earliest or latest; later runs continue.")
    ] = "earliest",
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", min=1, help="Rows that become visible together.")
    ] = 1_000_000,
    compact: Annotated[bool, typer.Option("--compact/--no-compact", help="Merge small files afterwards.")] = True,
    compact_only: Annotated[bool, typer.Option("--compact-only", help="Only merge small files.")] = False,
    target_mib: Annotated[
        int, typer.Option("--target-mib", min=1, max=16_384, help="Approximate size of merged files.")
    ] = 128,
    min_files: Annotated[int, typer.Option("--min-files", min=2, help="Leave hours with fewer files alone.")] = 4,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Continue after messages that retention removed before they were read.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Remove the existing archive, and start a new one.")
    ] = False,
    as_json: command.Json = False,
    namesrv: command.Namesrv = command.DEFAULT_NAMESRV,
    broker_wait_ms: command.BrokerWaitMs = command.DEFAULT_BROKER_WAIT_MS,
    master: command.Master = "",
    conf: command.Conf = None,
    py_files: command.PyFiles = None,
) -> None:
    """Write a topic to Parquet, in directories date=YYYY-MM-DD/hour=HH (UTC). Each further run adds new messages.

    Each message is in the archive exactly once, also after a kill; the job keeps its position below _pocketmq in the
    output. Small files are merged at the end; their rows are counted before and after, so that none is lost or doubled.
    """
    if by not in ("store", "born"):
        raise ConfigError("bad --by", why=by, hint="store or born")
    if starting not in ("earliest", "latest"):
        raise ConfigError("bad --from", why=starting, hint="earliest or latest")
    if compact_only and (overwrite or not compact):
        raise ConfigError("options contradict each other", why="--compact-only with --overwrite or --no-compact")

    from pocketmq.pipeline.jobs.common.session import import_spark, job_session

    import_spark()
    if not compact_only:
        from pocketmq.pipeline.jobs.common.topics import check_topic

        check_topic(namesrv, topic, broker_wait_ms)
    with job_session("archive", master, conf, py_files) as spark:
        from pocketmq.pipeline.jobs.archive.compaction import Merged, plan
        from pocketmq.pipeline.jobs.archive.compaction import compact as merge
        from pocketmq.pipeline.jobs.archive.files import files_of
        from pocketmq.pipeline.jobs.archive.run import (
            LOCK,
            Archive,
            archive_topic,
            check_state,
            pending,
            read_state,
            recover,
        )
        from pocketmq.pipeline.jobs.common.command import JobFailed
        from pocketmq.pipeline.jobs.common.console import Progress, note, print_result

        wanted = Archive(namesrv, topic, by, starting, batch_rows, not skip_lost, broker_wait_ms)
        files = files_of(spark, output)
        if compact_only and read_state(files) is None:
            raise JobFailed("nothing to merge", why=f"there is no archive in {output}", hint="check --output")
        waiting = 0 if compact_only else pending(wanted, files)  # before anything is made or removed
        rows, merged = 0, Merged()
        if overwrite and read_state(files) is not None:
            with files.locked(LOCK):
                files.remove("")
        read_state(files)
        with files.locked(LOCK):
            state = check_state(wanted, files)
            recover(files)
            if not compact_only:
                with Progress("archive", waiting) as progress:
                    rows = archive_topic(spark, wanted, state, files, progress.reach)
            if compact:
                merges = plan(files.sizes(""), target_mib << 20, min_files)
                with Progress("merge", len(merges), "directories") as progress:
                    merged = merge(spark, files, merges, progress.reach)
        result = {
            "rows": rows,
            "directories_merged": merged.directories,
            "files_before": merged.files_before,
            "files_after": merged.files_after,
            "rows_merged": merged.rows,
        }
        print_result(result, as_json, f"{topic} to {output}")
        if not rows and not compact_only:
            note(f"nothing new in {topic}")


JOB: Final = Job(
    "archive",
    archive,
    (
        "-t orders -o /data/orders",
        "-t orders -o s3a://bucket/orders --by born --target-mib 512",
        "-t orders -o /data/orders --compact-only --min-files 2",
    ),
)

if __name__ == "__main__":
    JOB.script()
