"""The user's handlers at work: queues of pulled messages in, results and commits out.

    handler_call, consume_result, traced_handler   one call, and the meaning of its answer
    process_telemetry   OpenTelemetry around calls, and around what tells a broker of failures
    process_queue      messages between pull and handler, and how far the group may commit
    queue_mode         the seam between pulling and the two ways of consuming
    handlers, worker_pool, handler_failures   concurrent consumption
    ordered, ordered_queue, queue_locks, lock_waits   ordered consumption under the broker's locks
    handler_watch, consumer_statistics   running calls and their start; counts and rates

Which queues a consumer has, and pulling them, belong to ``client.push``.
"""
