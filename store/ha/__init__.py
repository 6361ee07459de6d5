"""Replication: a master's log, byte for byte, on its slaves. The only part of the store that knows sockets."""
