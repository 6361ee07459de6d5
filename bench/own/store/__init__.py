"""Parts of the store without a broker: records, appends, queues, recovery."""
