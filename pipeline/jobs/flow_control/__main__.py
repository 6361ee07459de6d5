"""``python -m pocketmq.pipeline.jobs.flow_control``."""

from pocketmq.pipeline.jobs.flow_control.command import JOB

if __name__ == "__main__":
    JOB.script()
