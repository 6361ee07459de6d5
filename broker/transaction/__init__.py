"""RocketMQ's transactions: half messages, the producer's decision, and the check-back when no decision comes.

    transaction_plan      a send that begins a transaction, and its half message in RMQ_SYS_TRANS_HALF_TOPIC
    transaction_table     open transactions, and the outcomes of recent ones
    end_transaction_processor   commit and rollback as requests
    transaction_commits, transaction_records, transaction_writer   half records become messages and op messages
    transaction_recovery  open transactions, read from the log at a start
    transaction_service   asks producers about overdue half messages, and gives up at the limit

Transactions over several messages and brokers, with an id of their own, are in ``staged``.
"""
