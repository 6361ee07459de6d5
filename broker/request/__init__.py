"""The way of a request from the connection to its processor.

    request_table    request code -> processor and executor (RocketMQ's pair)
    request_task     one request: its typed header, its deadline, its single answer
    sweepable_queue  the bounded queue in front of an executor; flow control can take waiting tasks back
    executor         worker threads that drain the queue into the processor
    pairs            RocketMQ's pairs: queue sizes, thread counts, maximum waits
    default_processor  the pair of every code that has no executor of its own

What a processor does with a request belongs to the packages that follow (``send``, ``pull``, ``admin``); whether a
request may enter a queue is decided by ``flow_control.admission``.
"""
