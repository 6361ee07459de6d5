"""Messages on their way into sections: from ``Producer.send`` to a closed frame, and back to a receipt.

    producer, producer_options   the face and its settings
    pending_send                 a send that the short path does not take
    stages                       what is done to sends beside sending them: the chain, and its protocol
    compression, send_trace      two stages: smaller bodies; message trace
    selectors                    the queue of a message with a key, of a user's choice, of a reply
    sections                     the one place where sections are made
    parking                      sends that wait for a route, or for a stage
    accumulator                  sends of one turn of the loop become sections of one frame per broker
    batch_send, batches          lists of messages and Arrow rows, in one loop
    failed_sends, section_port   what a producer asks of its durable retry, and what it offers to it
    request_reply                requests that wait for a reply

``client.sender`` delivers sections. Retries that survive the process are ``client.durable``; transactions
``client.transaction`` and ``client.staged``.
"""
