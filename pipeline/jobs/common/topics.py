"""Topics looked up before Spark starts, so that a wrong name costs a second and not half a minute.

Lives here: ``check_topic``.
"""

from pocketmq.common.errors import Cause
from pocketmq.pipeline.errors import BrokerAway
from pocketmq.pipeline.jobs.common.command import JobFailed
from pocketmq.pipeline.source.planner import Planner


def check_topic(namesrv: str, topic: str, wait_ms: int) -> int:
    """Return how many messages a topic holds. Raises ``TopicUnknown``, and ``JobFailed`` if nobody answers."""
    planner = Planner(namesrv, "pocketmq-jobs", wait_ms)
    try:
        bounds = planner.bounds(planner.queues([topic]))
    except BrokerAway as error:
        raise JobFailed(
            "no broker answers", why=error.why, hint=f"waited {wait_ms} ms; check --namesrv", cause=Cause.CONNECTION
        ) from error
    finally:
        planner.close()
    return sum(max(0, high - low) for low, high in bounds.values())
