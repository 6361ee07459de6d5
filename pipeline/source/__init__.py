"""Topics as tables: what Spark reads.

``starting`` and ``positions`` say where a query begins, stands and ends; ``planner`` asks brokers on the driver and
cuts ranges; ``range_reader`` reads them in tasks as Arrow batches; ``pushdown`` leaves out what filters exclude;
``columns`` is the schema. ``source`` is ``format("pocketmq")``, ``log_source`` reads a store directory without a
broker. ``identity`` tells a topic from one of the same name that was made later; ``notes`` prints lines for the user.
"""
