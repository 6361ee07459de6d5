"""What the store removes: segments by age and by disk space, with their queue entries, index files and checksums.

``retention`` decides and removes; ``running_flags`` says why the store takes no messages now (disk full, errors), in
RocketMQ's bits.
"""
