"""``python -m pocketmq.pipeline.jobs.replay``."""

from pocketmq.pipeline.jobs.replay.command import JOB

if __name__ == "__main__":
    JOB.script()
