"""The topics of a broker: which exist, with how many queues and which permissions.

``topic_table`` answers every check of a request and creates topics on demand; they are persisted before one of their
messages is acknowledged. After a promotion or a lost file it recreates the topics that the log has and the table
lacks. ``queue_checks`` checks requests that name one queue, and the offsets that they commit.

Consume queues, which hold the messages of a topic, belong to ``store.consumequeue``; requests that administer topics
to ``admin``.
"""
