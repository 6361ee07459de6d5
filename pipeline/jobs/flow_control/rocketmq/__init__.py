"""RocketMQ's own logs: lines with their stack traces (``lines``), and the facts that they say (``facts``)."""
