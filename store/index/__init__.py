"""The key index: from a unique id or key to places in the commit log, in RocketMQ's index file format.

``index_keys`` takes the keys out of appended columns, ``index_file`` is one file of hash slots and entries, ``index``
keeps the files in order and inserts in a thread with a watermark of its own.

Hashes collide: the caller (``message_store``) compares the real key.
"""
