"""Jobs on topics that run in Spark: each a package with its command, ``pocketmq pipeline NAME``, which also runs as
``python -m pocketmq.pipeline.jobs.NAME`` and by ``spark-submit``.

    archive       a topic to Parquet, exactly once
    replay        Parquet to a topic, in order
    dedupe        a topic or table without its duplicates
    reconcile     two sets of messages compared
    flow_control  logs of brokers and clients to incidents and their causes

``common`` has what they share.
"""
