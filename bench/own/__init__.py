"""PocketMQ's own cases, in more depth than a comparison can go: ``python -m bench NAME``.

``store``: parts without a broker. ``broker``: a whole broker under one load. ``client``: what consumers and producers
cost. ``spark``: the pipeline. A case is a module with ``run()``, which yields its rows; ``--quick`` shortens each.
"""

CASES = {
    "gil": ("store.gil", "which calls stall the other threads"),
    "records": ("store.records", "record codecs, µs a record; reading as messages and as Arrow columns"),
    "store": ("store.append", "append, flush, beside memcpy and pwrite"),
    "queues": ("store.queues", "dispatch, index, get"),
    "verify": ("store.verify", "pocketmq log verify in GB/s, by checksums and by records, beside a plain read"),
    "recovery": ("store.recovery", "verification and start after a kill in GB/s, start after a clean stop (GIGABYTES)"),
    "remoting": ("broker.remoting", "the remoting server by itself, beside the echo floor"),
    "headers": ("broker.headers", "sends with msgpack, JSON and RocketMQ's binary headers, interleaved"),
    "access": ("broker.access", "sends with users and policies, signatures and TLS, beside none of them"),
    "overload": ("broker.overload", "goodput and refusals at 0.5 to 10 times capacity, open loop"),
    "pool": ("broker.pool", "tails of sends with and without the write-buffer pool on a busy disk"),
    "sync_flush": ("broker.sync_flush", "group commit against the disk's own rate of syncs, plain and slowed to 5 ms"),
    "replication": ("broker.replication", "sends with and without a slave; catch-up of a new slave (GIGABYTES)"),
    "start": ("broker.start", "start to the ready line, memory and CPU of an idle server"),
    "masters": ("broker.masters", "cluster --masters 1, 2, 4, each process with the same share of a core (SHARE)"),
    "telemetry": ("broker.telemetry", "what counting times costs: two brokers, with and without"),
    "scrape": ("broker.scrape", "/metrics with 10,000 topics and groups, and what it does to the loop (TOPICS)"),
    "dashboard": (
        "broker.dashboard",
        "what a dashboard with ten viewers costs a busy broker (TOPICS, CONSUMER_GROUPS, RATE, PAIRS)",
    ),
    "delay": ("broker.delay", "sends beside a million delayed messages, accuracy, restart (PENDING)"),
    "transactions": ("broker.transactions", "transactions beside plain sends and beside open ones (TRANSACTIONS)"),
    "consume": ("client.consume", "push consumption: three kinds of handlers, 100 joining, a stop handing over"),
    "ordered": ("client.ordered", "ordered push consumption over 16 queues, a stop handing over"),
    "compression": ("client.compression", "packing and unpacking by type and size, and through a broker (COUNT)"),
    "durable_retry": ("client.durable_retry", "the retry store's intake and the resends from it (COUNT)"),
    "spark": ("spark.read", "Spark reading through the broker and from the log, beside Parquet (ROWS, thousands)"),
    "spark_kafka": ("spark.kafka", "Spark's own Kafka source on the same rows, where Maven can fetch it (ROWS)"),
    "spark_share": ("spark.share", "rows per CPU second beside ready batches, Kafka and Parquet, in turns (ROWS)"),
    "spark_sink": ("spark.sink", "Spark writing to a topic, as transactions and without, and its tasks alone (ROWS)"),
}
"""Name → module below this package, and what it measures."""
