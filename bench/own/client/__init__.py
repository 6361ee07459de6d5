"""What consumers and producers cost: handlers, compression, the retry store."""
