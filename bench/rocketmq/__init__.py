"""RocketMQ's own benchmark programs on PocketMQ's SDK: the same options, the same lines."""
