"""The real broker, in-process, for tests."""
