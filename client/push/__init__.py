"""Consumer groups: queues shared among members, pulled, handed to handlers, committed.

    push_consumer, consumer_options   the face and its settings
    rebalance_service   which queues this member reads; taking them and giving them up
    queue_pull          the pull of one queue
    send_back           failed messages go back to the broker
    message_stream      ``async for`` over the messages
    consume_timeout, loop_watch, consumer_status, subscription_check   what watches a consumer

Handlers themselves are run by ``client.handlers``.
"""
