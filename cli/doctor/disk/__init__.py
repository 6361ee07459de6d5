"""``pocketmq doctor disk``: ``measure`` makes the store's calls under a directory, ``mounts`` finds its file system,
``meaning`` says what the measurements mean for the settings, ``command`` prints.
"""
