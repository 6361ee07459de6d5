"""Texts of RocketMQ and PocketMQ that people paste, and what they mean.

A pasted text goes through ``explanation`` (lines, chains of causes), which asks ``search`` for the known texts in each
line. They are the rows of ``common/refusals.py``, for what PocketMQ itself never writes those of ``send``, ``consume``,
``broker`` and ``upkeep``, and for the exceptions of the SDK those of ``sdk``; ``codes`` has the response codes.
No module here does I/O or knows a command.
"""
