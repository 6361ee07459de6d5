"""RocketMQ's transactions: half messages, the producer's decision, and the check-back when no decision comes.

    transaction_plan      a send that is half of a transaction, and where it waits (RMQ_SYS_TRANS_HALF_TOPIC)
    transaction_table     which transactions are open, and how recent ones ended
    end_transaction_processor   commit and rollback as requests
    transaction_commits, transaction_records, transaction_writer   half records become messages and op messages
    transaction_recovery  what is open, read from the log at a start
    transaction_service   asks producers about overdue halves, and gives up after the limit

Transactions over several messages and brokers with an identity of their own are ``staged``.
"""
