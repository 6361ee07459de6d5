"""The daemon: processors and their executors, topics, offsets, long polling, registration."""
