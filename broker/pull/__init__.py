"""Messages out: pulls, long polling, offsets and queries.

    pull_processor, native_pull   PULL_MESSAGE and the native pull of many queues in one request
    pull_checks     may this group read that queue; the store's results as response codes
    pull_service, long_polling   pulls that found nothing wait for messages or for their time limit
    slave_reads     where to pull next, with slaves; which messages are still in memory
    consumer_processor   offsets and group members
    query_processor   single messages by key and by offset in the log

``store.consumequeue.get`` reads consume queues and the log; filters come from ``group``.
"""
