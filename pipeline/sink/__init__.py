"""Tables as messages: the formats that Spark writes.

``sink`` is the format, ``sink_plan`` checks options and columns before a job begins, ``sink_task`` sends on executors
and commits on the driver, through a staged transaction (``client.staged``) or plainly.
"""
