"""A topic without its messages, with its settings.

Lives here: ``purge_topic``. No request of RocketMQ's empties a topic, so it is deleted and created again.
"""

from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.group_admin import groups_of_topic, require_offline


async def purge_topic(admin: Admin, topic: str, *, force: bool = False) -> None:
    """Delete a topic and create it with the same settings on each broker; offsets of its groups go with it.

    Raises ``GroupOnline`` while consumers are connected: they would go on from positions that the new queues do not
    have, and skip messages; ``force`` does it anyway.
    """
    masters = await admin.masters()
    settings = await admin.topic_settings(topic, masters)
    if not force:
        for group in await groups_of_topic(admin, topic, masters.values()):
            await require_offline(admin, group, masters.values(), f"topic {topic} not emptied")
    await admin.delete_topic(topic)
    for name, config in settings.items():
        await admin.create_topic(
            topic,
            read_queues=config.read_queue_nums,
            write_queues=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            broker=name,
        )
