"""``pocketmq log verify | dump | export | repair``: a store directory without a broker."""
