"""Consumer groups: their settings, their members, how far they have read, what they subscribe to.

Heartbeats arrive in ``client_processor`` and fill ``client_table``; ``group_notifier`` tells members about changes,
``subscription_conflicts`` warns when members of a group disagree. ``subscription_groups`` has the settings,
``consumer_offsets`` the progress, ``retry_topics`` makes the group's retry and dead-letter topics.
``message_filter`` turns a subscription into a test of messages for ``pull``.

Which member reads which queue is decided by the clients (``client.connection.rebalance``); locks of ordered queues
belong to ``lock``.
"""
