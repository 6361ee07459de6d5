"""The way of a request from the connection to its processor.

    request_table    request code -> processor and executor (RocketMQ's pair)
    request_task     one request: its typed header, when it arrived, its single answer
    sweepable_queue  the bounded queue in front of an executor; flow control can remove waiting tasks
    executor         worker threads that drain the queue into the processor
    pairs            RocketMQ's pairs: queue sizes, thread counts, maximum waits
    default_processor  the pair of every code that has no executor of its own

The processors themselves belong to the packages that follow (``send``, ``pull``, ``admin``);
``flow_control.admission`` decides whether a request may enter a queue.
"""
