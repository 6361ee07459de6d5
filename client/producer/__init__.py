"""Messages out: from ``Producer.send`` to a receipt.

    producer, producer_options   the face and its settings
    compression, selectors       bodies; which queue takes a message
    accumulator, batches, section_port   sends of one turn of the loop become sections of one frame per broker
    in_flight                    what may be under way, in sends and bytes
    sender, rocketmq_send, send_windows   frames to brokers, natively or as RocketMQ's clients send
    attempt_plan, retry, retry_budget, retry_gate, fault_items   what happens after a failed attempt
    attempt_log                  failed sends in the log, at a bounded rate
    request_reply, copy_sender   requests that wait for a reply; copies of received messages

Retries that survive the process are ``client.durable``; transactions ``client.transaction`` and ``client.staged``.
"""
