"""The Python SDK: producers, consumers, admin."""
