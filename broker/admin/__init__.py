"""Requests of administrators: RocketMQ's ``mqadmin``, PocketMQ's CLI and the SDK's ``Admin``.

    broker_admin     runtime information, settings, store;  ha_runtime_admin   replication
    topic_admin, queue_admin   topics, their queues, clean-up
    group_admin, consume_stats   settings, progress, members and resets of groups
    consumer_relay   questions that the broker forwards to running consumers
    lock_admin, transaction_admin   queue locks, open transactions;  admin_refused   their common error

All of them run on the default pair. The rules that they apply are in ``topic``, ``group``, ``lock``
and ``transaction``.
"""
