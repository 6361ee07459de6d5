"""Messages on their way into sections: from ``Producer.send`` to a closed frame, and back to a receipt.

    producer, producer_options   the face and its settings
    pending_send                 a send that the short path does not take
    stages, send_chain concerns beside sending: the protocol, and the chain of a producer
    compression, send_trace, send_telemetry      stages: smaller bodies; message trace; OpenTelemetry
    short_path                   plain messages, with a fraction of the calls: frames of a turn, their ends
    overlap                      whether a turn is cut in two, measured
    short_append, short_targets  one such frame; the constant parts of frames by broker, topic and queue
    submission                   the usual way of single sends: checks, keys, queues, the frames of a turn
    selectors                    the queue of a message with a key, of a user's choice, of a reply
    sections                     the one place where sections are made
    parking                      sends that wait for a route, or for a stage
    accumulator                  sends of one turn of the loop become sections of one frame per broker
    batch_send, batches          lists of messages and Arrow rows, in one loop
    send_port                    the inner face for transactions, requests and stages that send
    request_reply                requests that wait for a reply

``client.sender`` delivers sections. Retries that survive the process are a stage, ``client.durable``; transactions are
``client.transaction`` and ``client.staged``.
"""
