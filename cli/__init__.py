"""One command, ``pocketmq``."""
