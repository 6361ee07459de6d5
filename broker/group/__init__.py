"""Consumer groups: their settings, members, offsets and subscriptions.

Heartbeats arrive in ``client_processor`` and fill ``client_table``; ``group_notifier`` notifies members of changes,
``subscription_conflicts`` warns when members of a group disagree. ``subscription_groups`` has the settings,
``consumer_offsets`` the progress, ``retry_topics`` creates the group's retry and dead-letter topics.
``message_filter`` turns a subscription into a filter of messages for ``pull``.

The clients decide which member reads which queue (``client.connection.rebalance``); locks of ordered queues belong to
``lock``.
"""
