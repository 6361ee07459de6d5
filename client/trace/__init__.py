"""RocketMQ's message trace: ``trace`` collects the records of producers and consumers and sends them to the trace
topic, ``trace_format`` is its text. Showing a trace is ``client.admin.trace_path`` and ``pocketmq trace``.
"""
