"""Commands that send, read and find messages, and what became of them: produce, consume, request, message, trace, dlq,
transaction, retry-store. Each parses options, calls the SDK and prints.
"""
