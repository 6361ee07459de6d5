"""What the store removes: segments by age and by disk space, with their queue entries, index files and checksums.

``retention`` decides and removes; its flags say that the store takes no messages now, in RocketMQ's bits.
"""
