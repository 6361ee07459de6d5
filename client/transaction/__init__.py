"""RocketMQ's transactions on the client's side: ``transaction_producer`` sends halves and runs the local transaction,
``transaction_end`` delivers the decision, ``transaction_checks`` answers the broker's check-back.

A commit over several messages and brokers with an identity of its own is ``client.staged``.
"""
