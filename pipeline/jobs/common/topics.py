"""Lookup of topics before Spark starts: a wrong name then fails in a second instead of half a minute.

Lives here: ``check_topic``.
"""

import contextlib

from pocketmq.common.errors import Cause
from pocketmq.pipeline.access import job_access
from pocketmq.pipeline.errors import BrokerAway
from pocketmq.pipeline.jobs.common.command import JobFailed
from pocketmq.pipeline.source.planner import Planner


def check_topic(namesrv: str, topic: str, wait_ms: int) -> int:
    """Return the number of messages of a topic. Raises ``TopicUnknown``, and ``JobFailed`` if no broker answers."""
    try:
        with contextlib.closing(Planner(namesrv, "pocketmq-jobs", wait_ms, job_access())) as planner:
            bounds = planner.bounds(planner.queues([topic]))
    except BrokerAway as error:
        raise JobFailed(
            "no broker answers", why=error.why, hint=f"waited {wait_ms} ms; check --namesrv", cause=Cause.CONNECTION
        ) from error
    return sum(max(0, high - low) for low, high in bounds.values())
