"""``pocketmq log verify | dump | export | repair``: works on a store directory without a broker."""
