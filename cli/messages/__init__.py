"""Commands that send, read, find and follow messages: produce, consume, request, message, trace, dlq, transaction,
retry-store. Each parses options, calls the SDK and prints.
"""
