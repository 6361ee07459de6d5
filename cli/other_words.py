"""Words of other tools for commands of ours: ``pocketmq send`` and ``pocketmq topicList`` get a hint at what to type.

Lives here: ``OTHER_WORDS`` and ``ours_for``. They are no second names of commands: nothing runs by them.
"""

from collections.abc import Mapping, Sequence
from typing import Final

OTHER_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "help": ("--help",),
    "version": ("--version",),
    "start": ("standalone", "broker", "namesrv"),
    "server": ("standalone", "broker", "namesrv"),
    "serve": ("standalone", "broker", "namesrv"),
    "run": ("standalone", "worker"),
    "send": ("produce",),
    "publish": ("produce",),
    "pub": ("produce",),
    "receive": ("consume",),
    "read": ("consume",),
    "subscribe": ("consume", "topic tail"),
    "sub": ("consume", "topic tail"),
    "tail": ("topic tail",),
    "status": ("top", "doctor"),
    "stats": ("top", "doctor"),
    "info": ("top", "doctor"),
    "health": ("doctor",),
    "lag": ("group list",),
    "ui": ("dashboard",),
    "web": ("dashboard",),
    "backup": ("log backup",),
    "verify": ("log verify",),
    "settings": ("config show",),
    "completion": ("--install-completion",),
    "topics": ("topic list",),
    "groups": ("group list",),
    "dead-letters": ("dlq list",),
    "topic ls": ("topic list",),
    "topic show": ("topic describe",),
    "topic info": ("topic describe",),
    "topic status": ("topic describe",),
    "topic add": ("topic create",),
    "topic update": ("topic alter",),
    "topic rm": ("topic delete",),
    "topic remove": ("topic delete",),
    "topic empty": ("topic purge",),
    "topic truncate": ("topic purge",),
    "group ls": ("group list",),
    "group show": ("group describe",),
    "group info": ("group describe",),
    "group lag": ("group list", "group describe"),
    "group reset": ("group seek",),
    "group reset-offset": ("group seek",),
    "group rm": ("group delete",),
    "group remove": ("group delete",),
    "dlq ls": ("dlq list",),
    "dlq retry": ("dlq resend",),
    "dlq replay": ("dlq resend",),
    "message find": ("message query",),
    "message show": ("message get",),
    "clusterList": ("brokers", "top", "doctor"),
    "brokerStatus": ("brokers", "top", "doctor"),
    "topicList": ("topic list",),
    "topicStatus": ("topic describe",),
    "topicRoute": ("topic locate", "topic describe"),
    "updateTopic": ("topic create", "topic alter"),
    "deleteTopic": ("topic delete",),
    "consumerProgress": ("group list", "group describe"),
    "consumerConnection": ("group describe --running",),
    "consumerStatus": ("group describe --running",),
    "deleteSubGroup": ("group delete",),
    "resetOffsetByTime": ("group seek",),
    "skipAccumulatedMessage": ("group seek",),
    "queryMsgById": ("message get",),
    "queryMsgByOffset": ("message get",),
    "queryMsgByKey": ("message query",),
    "queryMsgByUniqueKey": ("message query",),
    "queryMsgTraceById": ("trace",),
    "sendMessage": ("produce",),
    "consumeMessage": ("consume",),
    "getBrokerConfig": ("config live",),
    "updateBrokerConfig": ("config set",),
    "createUser": ("user create",),
    "createAcl": ("acl create",),
    "haStatus": ("ha status",),
    "electMaster": ("ha promote",),
}
"""A command that does not exist, with its group → what to type. Words of shells and of the tools of Kafka, NATS and
Redis, and the commands of RocketMQ's ``mqadmin``."""


def ours_for(path: Sequence[str]) -> str:
    """Return "Did you mean …?" for a command that does not exist, such as ``("group", "reset")``; empty: unknown."""
    found = OTHER_WORDS.get(" ".join(path))
    if not found:
        return ""
    names = ", ".join(f"'pocketmq {each}'" for each in found)
    return f"Did you mean {names}?"
