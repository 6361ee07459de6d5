"""PocketMQ's own cases, one module each: parts by themselves and whole brokers beside the machine's floor.
Run one with ``python -m bench NAME``.
"""
