"""What the store removes: segments by age and by disk space, with their queue entries, index files and checksums.

``retention`` decides and removes; its flags, with RocketMQ's bits, mark a store that accepts no messages.
"""
