"""Messages in: from a drained queue of requests to one group append and its answers.

    send_processor  takes everything that was drained together: one group, one append, then the answers
    send_planner    requests -> groups of records; what one send thread needs before the store
    send_checks     may this message go to that queue?
    native_append, native_half   records that PocketMQ's clients built, checked and patched
    rocketmq_send   SEND_MESSAGE, V2 and batch: records that the broker builds
    send_back       a consumer returns a message (CONSUMER_SEND_MSG_BACK)
    reply_processor replies of request and reply
    send_batch, send_times   one send on its way; the times of an append

Delay and transactions decide where such a message waits (``delay.delay_plan``, ``transaction.transaction_plan``).
"""
