"""``pocketmq topic create``: an existing topic is not changed by accident.

Lives here: ``Asked`` (the settings of the command), their effect on an existing topic, ``create_topic``.

On the wire RocketMQ's request creates or changes a topic without a check (UPDATE_AND_CREATE_TOPIC), so the command
reads the topic from the brokers first. A change between that read and the request goes unnoticed.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from pocketmq.cli.output import print_done
from pocketmq.client.admin.admin import TOPIC_QUEUE_NUMS, Admin
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.topics import Perm, check_topic_name, perm_string
from pocketmq.remoting.protocol.topic import TopicConfigBody

_OPEN = Perm.READ | Perm.WRITE


class TopicDiffers(PocketMQError):
    """The topic exists with other settings; nothing was changed."""

    default_cause = Cause.BAD_REQUEST


class MessagesHidden(PocketMQError):
    """With so few queues some messages could not be read any more; nothing was changed."""

    default_cause = Cause.BAD_REQUEST


@dataclass(slots=True, frozen=True)
class Asked:
    """The settings of the command; None: not given. ``perm`` has the bits READ and WRITE."""

    queues: int | None = None
    perm: int | None = None
    order: bool | None = None

    def on(self, config: TopicConfigBody) -> TopicConfigBody:
        """Return a topic's settings with these; settings not given, and INHERIT, stay."""
        queues, perm, order = self.queues, self.perm, self.order
        return msgspec.structs.replace(
            config,
            read_queue_nums=config.read_queue_nums if queues is None else queues,
            write_queue_nums=config.write_queue_nums if queues is None else queues,
            perm=config.perm if perm is None else config.perm & ~_OPEN | perm,
            order=config.order if order is None else order,
        )

    def new(self, topic: str) -> TopicConfigBody:
        """Return the settings of a new topic."""
        plain = TopicConfigBody(topic, TOPIC_QUEUE_NUMS, TOPIC_QUEUE_NUMS, int(_OPEN))
        return self.on(plain)

    def text(self) -> str:
        """Return the given settings as text."""
        parts = [] if self.queues is None else [_queues_text(self.queues)]
        if self.perm is not None:
            parts.append(f"permission {_perm_text(self.perm)}")
        if self.order is not None:
            parts.append("ordered" if self.order else "not ordered")
        return ", ".join(parts)


def settings_text(config: TopicConfigBody, *, whole: bool = True) -> str:
    """Return a topic's settings as text; not ``whole``: without those of nearly every topic."""
    if config.read_queue_nums == config.write_queue_nums:
        text = _queues_text(config.read_queue_nums)
    else:
        text = f"{config.read_queue_nums} read and {config.write_queue_nums} write queues"
    if whole or config.perm & _OPEN != _OPEN:
        text += f", permission {_perm_text(config.perm)}"
    return text + (", ordered" if config.order else "")


def _queues_text(count: int) -> str:
    return f"{count} queue" if count == 1 else f"{count} queues"


def _perm_text(perm: int) -> str:
    return ("R" if perm & Perm.READ else "") + ("W" if perm & Perm.WRITE else "") or "none"


async def create_topic(
    admin: Admin,
    topic: str,
    masters: Mapping[str, str],
    asked: Asked,
    *,
    if_not_exists: bool = False,
    update: bool = False,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Create ``topic`` on those of ``masters`` (name → address) that do not have it, and print the result.

    Where its settings differ from ``asked``: raise ``TopicDiffers`` before any change; with ``if_not_exists`` report it
    on standard error and leave the topic; with ``update`` change it, but without ``force`` raise ``MessagesHidden`` if
    queues with messages would disappear.
    """
    check_topic_name(topic)
    known = await admin.topic_settings(topic, masters)
    wanted = {name: asked.on(config) for name, config in known.items()}
    different = [name for name in known if wanted[name] != known[name]]
    if different and not (if_not_exists or update):
        raise TopicDiffers(
            f"topic {topic} exists with other settings",
            why="; ".join(f"{settings_text(known[name])} on {name}" for name in different)
            + f"; asked for: {asked.text()}",
            hint="nothing was changed: --update changes it, --if-not-exists leaves it unchanged",
        )
    hidden = {}
    if update:
        for name in different:
            hidden[name] = await _hidden(admin, topic, masters[name], known[name], wanted[name])
        if any(hidden.values()) and not force:
            _refuse(topic, hidden)
    for name in masters:
        if name not in known:
            config = asked.new(topic)
            await _put(admin, topic, name, config)
            text = f"created {topic}: {settings_text(config, whole=False)} on {name}"
            print_done(text, as_json, **_facts(topic, name, "created", config))
        elif name not in different:
            text = f"{topic} exists already: {settings_text(known[name], whole=False)} on {name}"
            print_done(text, as_json, **_facts(topic, name, "unchanged", known[name]))
        elif update:
            await _put(admin, topic, name, wanted[name])
            text = f"changed {topic} on {name}: {settings_text(known[name])} -> {settings_text(wanted[name])}"
            before = {"before": _settings(known[name])}
            print_done(text, as_json, **_facts(topic, name, "changed", wanted[name]), **before)
            if hidden[name]:
                print(f"hidden, not deleted: {_hidden_text(name, hidden[name])}", file=sys.stderr)
        else:
            has = f"{settings_text(known[name])} on {name}; asked for: {asked.text()} (left as it is)"
            print(f"{topic} exists already and differs: {has}", file=sys.stderr)
            if as_json:
                print_done("", as_json, **_facts(topic, name, "unchanged", known[name]))


def _settings(config: TopicConfigBody) -> dict[str, object]:
    return {
        "read_queues": config.read_queue_nums,
        "write_queues": config.write_queue_nums,
        "perm": perm_string(config.perm),
        "order": config.order,
    }


def _facts(topic: str, broker: str, did: str, config: TopicConfigBody) -> dict[str, object]:
    """Return the line of JSON of one broker."""
    return {"topic": topic, "broker": broker, "did": did, "settings": _settings(config)}


async def _put(admin: Admin, topic: str, broker: str, config: TopicConfigBody) -> None:
    await admin.create_topic(
        topic,
        read_queues=config.read_queue_nums,
        write_queues=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        broker=broker,
    )


async def _hidden(
    admin: Admin, topic: str, address: str, before: TopicConfigBody, after: TopicConfigBody
) -> dict[int, int]:
    """Return queue id → messages of the queues that could not be read any more."""
    gone = range(after.read_queue_nums, before.read_queue_nums)
    if not gone:
        return {}
    queues = await admin.topic_queues(topic, address)
    return {each.queue.queue_id: each.count for each in queues if each.queue.queue_id in gone and each.count}


def _hidden_text(broker: str, queues: Mapping[int, int]) -> str:
    count = sum(queues.values())
    messages = "1 message" if count == 1 else f"{count:,} messages"
    return f"{broker} holds {messages} in {_queues_text(len(queues))}, id {min(queues)} and above"


def _refuse(topic: str, hidden: Mapping[str, Mapping[int, int]]) -> None:
    raise MessagesHidden(
        f"topic {topic} not changed: some of its messages could not be read any more",
        why="; ".join(_hidden_text(name, queues) for name, queues in hidden.items() if queues),
        hint="--force hides them: they stay until retention deletes them, and the former number of queues shows them "
        "again",
    )
