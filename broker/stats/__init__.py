"""Counters and times of one broker run, written where the work happens and read by ``metrics``.

Request workers add to ``counters`` and ``stage_times``, appends to ``put_statistics``, the flush to ``flush_times``,
written answers to ``rpc_times``.
Once a second ``stats_items`` samples RocketMQ's statistics by topic and group; ``topic_put_stats`` derives the messages
of each topic from the growth of its queues, and ``disk_space`` remembers how full the disks were.

Formats for people and for Prometheus belong to ``metrics``.
"""
