"""``pocketmq topic list | create | alter | describe | locate | purge | delete``.

Lives here: options and output; ``locate`` is in ``topic_locate``.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli import options
from pocketmq.cli.admin.topic_locate import locate
from pocketmq.cli.admin.topic_tail import tail
from pocketmq.cli.output import print_done, print_json, print_progress, print_rows, print_table, time_text
from pocketmq.cli.run import build_group, confirm, run_admin
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    help_text = "List, create, change, describe, empty and delete topics."
    return build_group(
        help_text,
        list=list_topics,
        create=create,
        alter=alter,
        describe=describe,
        locate=locate,
        tail=tail,
        purge=purge,
        delete=delete,
    )


def list_topics(
    system: Annotated[bool, typer.Option("--all", help="Include RocketMQ's own topics.")] = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """List the topics of the name server with their queues, permission and messages."""

    async def body(admin: "Admin") -> None:
        from pocketmq.client.errors import NoRoute
        from pocketmq.common.topics import TopicIllegal, is_system_topic, perm_string

        rows = []
        clusters = (await admin.cluster_info()).cluster_addr_table
        own = {*await admin.masters(), *clusters, *(f"{cluster}_REPLY_TOPIC" for cluster in clusters)}
        for topic in await admin.topics():
            if not system and (topic in own or is_system_topic(topic) or "%" in topic):
                continue
            try:
                found = await admin.describe_topic(topic)
            except NoRoute:  # deleted meanwhile
                continue
            except TopicIllegal as error:  # a broker may have registered what no request can name
                print_progress(f"left out: {error}")
                continue
            queues = len(found.route.read_queues)
            perms = "/".join(sorted({perm_string(perm) for perm in found.perms.values()}))
            rows.append((topic, queues, perms, found.count))
        columns = ("topic", "queues", "perm", "messages")
        print_rows(columns, rows, as_json)

    run_admin(namesrv, body)


def create(
    topic: options.TopicArgument,
    queues: Annotated[
        int | None,
        typer.Option("--queues", "-q", min=1, help="Read and write queues of each broker.  [new topic: 8]"),
    ] = None,
    perm: Annotated[str | None, typer.Option("--perm", help="R, W or RW.  [new topic: RW]")] = None,
    order: Annotated[bool | None, typer.Option("--order/--no-order", help="Mark the topic as ordered, or not.")] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave an existing topic unchanged, whatever its settings.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Give an existing topic these settings; all others stay.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --update: reduce the queues even if that hides messages.")
    ] = False,
    as_json: options.Json = False,
    cluster: Annotated[str, typer.Option("--cluster", help="Only on the brokers of this cluster.")] = "",
    broker: options.Broker = "",
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Create a topic. If it exists with other settings, this fails unless --if-not-exists or --update is given."""
    bits = None if perm is None else _perm_bits(perm)
    if if_not_exists and update:
        raise ConfigError("bad options", why="--if-not-exists and --update exclude each other", hint="give only one")
    if force and not update:
        raise ConfigError("bad options", why="--force without --update", hint="add --update, or omit --force")

    async def body(admin: "Admin") -> None:
        from pocketmq.cli.admin.topic_create import Asked, create_topic

        masters = await admin.masters(cluster=cluster, broker=broker)
        asked = Asked(queues, bits, order)
        await create_topic(
            admin, topic, masters, asked, if_not_exists=if_not_exists, update=update, force=force, as_json=as_json
        )

    run_admin(namesrv, body)


def alter(
    topic: options.TopicArgument,
    queues: Annotated[
        int | None, typer.Option("--queues", "-q", min=1, help="Read and write queues of each broker.")
    ] = None,
    perm: Annotated[str | None, typer.Option("--perm", help="R, W or RW.")] = None,
    order: Annotated[bool | None, typer.Option("--order/--no-order", help="Mark the topic as ordered, or not.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Reduce the queues even if that hides messages.")] = False,
    as_json: options.Json = False,
    cluster: Annotated[str, typer.Option("--cluster", help="Only on the brokers of this cluster.")] = "",
    broker: options.Broker = "",
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Change settings of an existing topic; prints them before and after. Refuses to hide messages."""
    bits = None if perm is None else _perm_bits(perm)
    if queues is None and bits is None and order is None:
        raise ConfigError("nothing to change", why="no setting is given", hint="--queues, --perm or --order")

    async def body(admin: "Admin") -> None:
        from pocketmq.cli.admin.topic_create import Asked, create_topic
        from pocketmq.client.admin.admin import NotFound

        masters = await admin.masters(cluster=cluster, broker=broker)
        known = await admin.topic_settings(topic, masters)
        if not known:
            raise NotFound(f"no topic {topic}", why=f"not on {', '.join(masters)}", hint="pocketmq topic create")
        here = {name: address for name, address in masters.items() if name in known}
        await create_topic(admin, topic, here, Asked(queues, bits, order), update=True, force=force, as_json=as_json)

    run_admin(namesrv, body)


def describe(
    topic: options.TopicArgument, as_json: options.Json = False, namesrv: options.Namesrv = options.DEFAULT_NAMESRV
) -> None:
    """Show the queues of a topic: broker, permission, offsets, time of the newest message."""

    async def body(admin: "Admin") -> None:
        from pocketmq.common.topics import perm_string

        found = await admin.describe_topic(topic)
        rows = [
            (
                each.queue.broker_name,
                each.queue.queue_id,
                perm_string(found.perms.get(each.queue.broker_name, 0)),
                each.min_offset,
                each.max_offset,
                each.count,
                time_text(each.last_update_ms) if each.last_update_ms else None,
            )
            for each in found.queues
        ]
        columns = ("broker", "queue_id", "perm", "min_offset", "max_offset", "messages", "last_message")
        if as_json:
            queues = [dict(zip(columns, row, strict=True)) for row in rows]
            print_json({"topic": topic, "messages": found.count, "queues": queues})
        else:
            print_table(columns, rows, title=f"{topic}: {found.count:,} messages")

    run_admin(namesrv, body)


def purge(
    topic: options.TopicArgument,
    force: Annotated[bool, typer.Option("--force", help="Also while consumers of the topic are connected.")] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Remove all messages of a topic, and keep its settings. Its queues and its groups start again at offset 0."""

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.topic_purge import purge_topic

        found = await admin.describe_topic(topic)
        confirm(f"Remove all {found.count:,} messages of {topic}?", yes, else_what=f"topic {topic} not emptied")
        await purge_topic(admin, topic, force=force)
        text = f"emptied {topic}: {found.count:,} messages removed"
        print_done(text, as_json, topic=topic, did="emptied", messages=found.count)

    run_admin(namesrv, body)


def delete(
    topic: options.TopicArgument,
    yes: options.Yes = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Delete a topic and its messages."""

    async def body(admin: "Admin") -> None:
        found = await admin.describe_topic(topic)
        confirm(f"Delete topic {topic} and its {found.count:,} messages?", yes, else_what=f"topic {topic} not deleted")
        await admin.delete_topic(topic)
        text = f"deleted {topic}: {found.count:,} messages"
        print_done(text, as_json, topic=topic, did="deleted", messages=found.count)

    run_admin(namesrv, body)


def _perm_bits(text: str) -> int:
    letters = text.upper().replace("-", "")
    if not letters or len(set(letters)) != len(letters) or not set(letters) <= set("RW"):
        raise ConfigError("bad permission", why=f"--perm {text}", hint="write R, W or RW")
    return 4 * ("R" in letters) + 2 * ("W" in letters)
