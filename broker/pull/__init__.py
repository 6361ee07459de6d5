"""Messages out: pulls, long polling, offsets and look-ups.

    pull_processor, native_pull   PULL_MESSAGE and the native pull of many queues in one request
    pull_checks     may this group read that queue; what the store's answer means on the wire
    pull_service, long_polling   pulls that found nothing wait for messages or for their time limit
    slave_reads     where to pull next, with slaves; what is still in memory
    consumer_processor   offsets and group members
    query_processor   single messages by key and by place in the log

Reading consume queues and the log is ``store.consumequeue.get``; filters come from ``group``.
"""
