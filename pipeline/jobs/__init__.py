"""Jobs on topics in Spark: each is a package with its command, ``pocketmq pipeline NAME``, which also runs as
``python -m pocketmq.pipeline.jobs.NAME`` and with ``spark-submit``.

    archive       a topic to Parquet, exactly once
    replay        Parquet to a topic, in order
    dedupe        a topic or table without its duplicates
    reconcile     two sets of messages compared
    flow_control  incidents and their causes, from logs of brokers and clients

``common`` is shared by all.
"""
