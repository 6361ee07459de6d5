"""Messages in: from a drained queue of requests to one group append and its answers.

    send_processor  all requests drained together: one group, one append, then the answers
    send_planner    requests -> groups of records, before the store is needed
    send_checks     may this message go to that queue?
    native_append, native_half   records built by PocketMQ's clients, checked and patched
    rocketmq_send   SEND_MESSAGE, V2 and batch: records that the broker builds
    send_back       a consumer returns a message (CONSUMER_SEND_MSG_BACK)
    reply_processor replies of request-reply
    send_batch, send_times   one send on its way; the times of an append

Small frames take a shorter way through the same queue (ADR 0011):

    short_path      the loop's end: frames checked in the read buffer, queued
    short_routes    the constant parts of headers, learned once
    short_drain     the send thread's end: one append, answers written by the thread
    short_answer    the bytes of such an answer
    run_to_completion   the append on the loop itself, where nothing can stall
    short_rocketmq  the same for RocketMQ's clients, with short_rocketmq_header, _templates and _answers

``delay.delay_plan`` and ``transaction.transaction_plan`` decide where delayed messages and halves wait.
"""
