"""What a producer takes and returns: messages with an id of the application's choice, halves of transactions, the check
of a message before anything is built from it, requests and replies, and receipts with the broker's promise.

``common.message`` defines ``Message`` and ``ReceivedMessage``.
"""
