"""The log on disk. Knows no wire: no request, no frame; only ``ha`` opens sockets, with a protocol of its own.

    disk          the file system as an argument, the cache of open files, locked memory
    commitlog     groups of records appended under one lock, committed, flushed; segments and write buffers
    consumequeue  per queue: where each message is in the log; what a pull reads
    index         from keys and unique ids to places in the log
    recovery      how a start finds the end of the log after the last run
    retention     removal of old segments, and of everything that refers to them
    ha            the log copied byte for byte to slaves
    offline       checking and repairing a store without a broker

``components`` makes and connects them, ``opening`` starts and ``closing`` stops them in order, ``checkpointer`` records
how far they are durable, ``dispatch`` carries appended records to queues and index. ``message_store`` is the broker's
interface to the store.
"""
