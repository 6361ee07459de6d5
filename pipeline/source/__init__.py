"""Topics as tables: what Spark reads.

``starting`` and ``positions`` define where a query begins, stands and ends; ``planner`` asks brokers on the driver;
``range_reader`` reads ranges in tasks as Arrow batches; ``pushdown`` skips what filters exclude; ``columns`` is the
schema. ``source`` is ``format("pocketmq")`` with its ``batch_reader`` and ``stream_reader``, which share ``plans``;
``log_source`` reads a store directory without a broker. ``identity`` distinguishes a topic from a later one of the same
name; ``notes`` prints lines for the user; ``worker`` is what a Python worker of Spark keeps from task to task.
"""
