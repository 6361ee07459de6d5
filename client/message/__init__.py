"""The messages and results of a producer: messages with an id of the application's choice, halves of transactions, the
check of a message before it is built into a record, requests and replies, and receipts with the broker's promise.

``common.message`` defines ``Message`` and ``ReceivedMessage``.
"""
