"""Benchmarks of PocketMQ beside other brokers and the machine's limits: ``python -m bench`` (``--help`` lists them)."""
