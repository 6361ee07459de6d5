"""``pocketmq doctor disk``: ``measure`` makes the store's calls under a directory, ``mounts`` finds its file system,
``meaning`` explains the measurements by setting, ``command`` prints.
"""
