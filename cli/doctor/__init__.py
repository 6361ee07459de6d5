"""``pocketmq doctor``: reads a live broker or measures a disk, and says what it means."""
