"""Staged transactions: many messages on several queues that appear all or not at all, and once, however often the
commit is repeated. The Spark sink stands on them.

    staged_processor  requests: begin, write, prepare, commit, abort
    staged_checks     what a request must be, to be served
    staged_state, staged_table   what is known of one transaction, and which there are; bounded
    staged_records, staged_log   events as records of the log, and the log as events
    staged_recovery   what the log says at a start
    staged_service    delivery of committed rows, expiry, snapshots

The client (``client.staged``) runs the protocol between brokers; the coordinator is the broker whose commit decides.
"""
