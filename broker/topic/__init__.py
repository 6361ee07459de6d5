"""The topics of a broker: which exist, with how many queues and which permissions.

``topic_table`` answers every check of a request and creates topics on demand. Before one of their messages is
acknowledged they are persisted, and ``registered_topics`` waits until name servers know them. After a promotion or a
lost file ``topic_table`` recreates the topics that the log has and the table lacks. ``queue_checks`` checks requests
that name one queue, and the offsets that they commit.

Consume queues, which hold the messages of a topic, belong to ``store.consumequeue``; requests that administer topics
to ``admin``.
"""
