"""Sections on their way to a broker: requests, answers, further attempts.

    section                      messages that travel together, and frames of them
    in_flight                    what may be under way, in sends and bytes
    sender                       delivers sections and settles their futures
    native_send                  one request for all sections of a frame
    rocketmq_send, send_windows  requests as RocketMQ's clients send them, in the order and number its brokers bear
    answers                      receipts and failed attempts from what brokers answer
    queue_choice, fault_items    which queue, past brokers that are slow or away
    attempt_plan, retry, retry_budget, retry_gate   what follows a failed attempt
    attempt_log                  failed attempts in the log, at a bounded rate
    copy_sender                  copies of received messages

Which messages form a section is decided in ``client.producer``; sockets belong to ``remoting``.
"""
