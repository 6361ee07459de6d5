"""Topics that a broker finds in its log and not in its table.

Lives here: ``remake_topics``.

A slave asks for its master's topics about once a second; the log is there at once. So a topic of the master's last
moment has messages in the slave's queues, some of them perhaps answered with SEND_OK, and nobody could read them. The
same of a broker whose ``topics.json`` is gone or was damaged: its backup lacks the last topic that was made.
"""

from pocketmq.broker.topic.topic_table import TableFull, TopicTable
from pocketmq.common.events import EventLog
from pocketmq.common.topics import Perm, TopicIllegal, check_topic_name
from pocketmq.store.message_store import MessageStore

NAMES_TOLD_MAX = 20
MASTER_GONE = "the old master was gone before it told of them"


def remake_topics(topics: TopicTable, store: MessageStore, log: EventLog, why: str = MASTER_GONE) -> list[str]:
    """Make the topics again that have messages in queues and are in no table; return their names. One event tells.

    They get as many queues as the highest queue id asks for, and may be read and written. What is left of a topic that
    was deleted stays deleted. Reads the ends of queues: not for the event loop.
    """
    highest: dict[str, int] = {}
    for queue in store.consume_queues.all():
        topic = queue.topic
        if topics.get(topic) is None and queue.last_physical_end() > store.consume_queues.deleted.get(topic):
            highest[topic] = max(highest.get(topic, 0), queue.queue_id)
    made: list[str] = []
    for topic, queue_id in sorted(highest.items()):
        try:
            check_topic_name(topic)
            topics.create(topic, queue_id + 1, int(Perm.READ | Perm.WRITE))
        except (TopicIllegal, TableFull) as error:
            log.error("topic_not_made_again", topic=topic[:128], error=str(error))
        else:
            made.append(topic)
    if made:
        log.warning(
            "topics_made_again",
            count=len(made),
            topics=made[:NAMES_TOLD_MAX],
            why=f"they have messages, and {why}",
            what_to_do="look whether they need more queues than were in use",
        )
    return made
