"""``pocketmq scenario``: the incidents, provoked in real processes."""
