"""``pocketmq pipeline NAME``: jobs on topics that run in Spark.

Lives here: which jobs there are.
"""

from typing import Final

import typer

from pocketmq.pipeline.jobs import archive, dedupe, flow_control, reconcile, replay
from pocketmq.pipeline.jobs.command import Job

JOBS: Final[tuple[Job, ...]] = (archive.JOB, replay.JOB, dedupe.JOB, reconcile.JOB, flow_control.JOB)


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    app = typer.Typer(
        help="Jobs on topics in Spark: pip install 'pocketmq\\[spark]', Java 17 or later.", no_args_is_help=True
    )
    for job in JOBS:
        job.register(app)
    return app
