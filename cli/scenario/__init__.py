"""``pocketmq scenario``: provokes incidents of production in real processes."""
