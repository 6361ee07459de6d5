"""RocketMQ's message trace: ``trace`` collects what producers and consumers did and sends it to the trace topic,
``trace_format`` is its text. Showing a trace is ``client.admin.trace_path`` and ``pocketmq trace``.
"""
