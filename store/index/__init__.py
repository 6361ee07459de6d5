"""The key index: from a unique id or key to positions in the commit log, in RocketMQ's index file format.

``index_keys`` extracts the keys from appended columns, ``index_file`` is one file of hash slots and entries, ``index``
keeps the files in order and inserts in a thread with its own watermark.

Hashes collide: the caller (``message_store``) compares the real key.
"""
