"""Locks on the queues of ordered consumers.

``lock_table`` is the core: which client of a group may consume which queue, until when, and which clients wait.
``lock_manager`` adds threads, log lines and notices to waiting clients. ``fencing_tokens`` gives every lock a number
that only grows, even across restarts, so that a consumer that lost its lock cannot commit.

The client's half is ``client.handlers.queue_locks``; administrators' requests are in ``admin.lock_admin``.
"""
