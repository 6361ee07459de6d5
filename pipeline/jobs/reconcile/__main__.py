"""``python -m pocketmq.pipeline.jobs.reconcile``."""

from pocketmq.pipeline.jobs.reconcile.command import JOB

if __name__ == "__main__":
    JOB.script()
