"""Messages in: from a drained queue of requests to one group append and its answers.

    send_processor  all requests drained together: one group, one append, then the answers
    send_planner    requests -> groups of records, before the store is needed
    send_checks     may this message go to that queue?
    native_append, native_half   records built by PocketMQ's clients, checked and patched
    rocketmq_send   SEND_MESSAGE, V2 and batch: records that the broker builds
    send_back       a consumer returns a message (CONSUMER_SEND_MSG_BACK)
    reply_processor replies of request-reply
    send_batch, send_times   one send on its way; the times of an append

``delay.delay_plan`` and ``transaction.transaction_plan`` decide where delayed messages and halves wait.
"""
