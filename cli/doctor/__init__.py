"""``pocketmq doctor``: reads a live broker or measures a disk, and explains the results."""
