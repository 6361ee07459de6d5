"""``pocketmq top``: the overview of a cluster in a terminal.

The dashboard's watch asks the cluster (``pocketmq.dashboard.watch``, which needs no web framework), ``overview`` makes
rows of what it knows, ``drawing`` makes lines of the rows, ``command`` shows them and reads keys.
"""
