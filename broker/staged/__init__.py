"""Staged transactions: many messages on several queues that appear all together or not at all, and only once, however
often the commit is repeated. The Spark sink is built on them.

    staged_processor  requests: begin, write, prepare, commit, abort
    id_owners         which user an id belongs to
    staged_checks     limits and conditions of requests
    staged_state, staged_table   the state of one transaction; all of them, bounded
    staged_records, staged_log   events as records of the log; appending and applying them
    staged_recovery   the state, read from the log at a start
    staged_service    delivery of committed rows, expiry, snapshots

The client (``client.staged``) runs the protocol between brokers; the coordinator is the broker whose commit decides.
"""
