"""``python -m pocketmq.pipeline.jobs.archive``."""

from pocketmq.pipeline.jobs.archive.command import JOB

if __name__ == "__main__":
    JOB.script()
