"""Consumer groups: queues shared among members, pulled, handed to handlers, committed.

    push_consumer, consumer_options   the face and its settings
    rebalance_service   the queues of this member: takes them and gives them up
    queue_pull          the pull of one queue
    send_back           failed messages go back to the broker
    message_stream      ``async for`` over the messages
    consume_timeout, loop_watch, consumer_status, subscription_check watching a consumer

Handlers themselves are run by ``client.handlers``.
"""
