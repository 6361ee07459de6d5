"""Locks on the queues of ordered consumers.

``lock_table`` is the core: which client of a group may consume which queue, until when, and who waits. ``lock_manager``
puts threads, log lines and waiting clients around it. ``fencing_tokens`` gives every lock a number that only grows,
also across restarts, so that a consumer that lost its lock cannot commit.

The client's half is ``client.handlers.queue_locks``; the requests of administrators are in ``admin.lock_admin``.
"""
