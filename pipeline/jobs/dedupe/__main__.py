"""``python -m pocketmq.pipeline.jobs.dedupe``."""

from pocketmq.pipeline.jobs.dedupe.command import JOB

if __name__ == "__main__":
    JOB.script()
