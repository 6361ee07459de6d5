"""POP: messages given out for a time, to any number of consumers of one queue, each acknowledged by itself.

    pop_processor   POP_MESSAGE, PEEK_MESSAGE, NOTIFICATION, POLLING_INFO and the native pop
    pop_reader      which queues a pop reads, and what it gets
    pop_service     pops that found nothing wait
    ack_processor   acknowledgements and changes of the invisible time
    pop_ledger, pop_queue   what is in flight: in memory, the lowest offset in flight committed
    ordered_batches the batches of ordered pops
    revival         what is not acknowledged in time goes to the retry topic, or is dead
    pop_snapshot    the ledger on disk, so that a crash repeats little
    revive_log      what a broker of RocketMQ has left in flight

The retry topic of a (group, topic) and the names of its handles are in ``common.receipt_handle``.
"""
