"""The client side of each peer, run in a process of its own by ``bench.comparison.worker``."""
