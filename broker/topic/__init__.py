"""The topics of a broker: which exist, with how many queues and which permissions.

``topic_table`` answers every check of a request, creates topics on demand and persists them before a message of
theirs is acknowledged. After a promotion or a lost file it makes the topics again that the log has and the table
lacks. ``queue_checks`` checks requests that name one queue, and the offsets that they commit.

Consume queues, which hold the messages of a topic, belong to ``store.consumequeue``; requests that administer topics
to ``admin``.
"""
