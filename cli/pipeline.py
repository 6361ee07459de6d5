"""``pocketmq pipeline NAME``: jobs on topics that run in Spark.

Lives here: the list of jobs.
"""

from typing import Final

import typer

from pocketmq.cli.connection import given
from pocketmq.pipeline.jobs.archive import command as archive
from pocketmq.pipeline.jobs.common.command import Job
from pocketmq.pipeline.jobs.dedupe import command as dedupe
from pocketmq.pipeline.jobs.flow_control import command as flow_control
from pocketmq.pipeline.jobs.reconcile import command as reconcile
from pocketmq.pipeline.jobs.replay import command as replay

JOBS: Final[tuple[Job, ...]] = (archive.JOB, replay.JOB, dedupe.JOB, reconcile.JOB, flow_control.JOB)


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    app = typer.Typer(
        help="Jobs on topics in Spark: pip install 'pocketmq[spark]', Java 17 or later.", no_args_is_help=True
    )

    @app.callback()
    def connect() -> None:
        from pocketmq.pipeline.access import Access, use_access  # the SDK is not imported for the help

        use_access(Access(**given()))

    for job in JOBS:
        job.register(app)
    return app
