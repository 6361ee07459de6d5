"""Sections on their way to a broker: requests, answers, further attempts.

    section                      messages that travel together, and frames of them
    in_flight                    the limits on unsettled sends, in number and bytes
    sender                       delivers sections and settles their futures
    native_send                  one request for all sections of a frame
    rocketmq_send, send_windows  requests as RocketMQ's clients send them, in order and bounded number
    answers                      receipts and failed attempts from brokers' answers
    queue_choice, fault_items    the choice of a queue, past slow or unreachable brokers
    attempt_plan, retry, retry_budget, retry_gate   the handling of a failed attempt
    attempt_log                  failed attempts in the log, at a bounded rate
    copy_sender                  copies of received messages

Which messages form a section is decided in ``client.producer``; sockets belong to ``remoting``.
"""
