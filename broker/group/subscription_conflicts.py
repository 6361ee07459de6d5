"""Members of one consumer group with different subscriptions: RocketMQ's silent trap.

The broker keeps one subscription per topic and group, the newest, so members with another subscription lose messages.
RocketMQ says nothing; here the difference is logged as an error and reported to the members.

Lives here: ``Wish`` (the subscriptions of one member, in short) and the ``difference`` between members. No I/O.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pocketmq.common.sql_filter import TAG_TYPE
from pocketmq.common.topics import is_retry_topic
from pocketmq.remoting.protocol.client import SubscriptionData

TOPICS_SHOWN_MAX: Final = 64
"""Topics of one member that are kept to name a difference; beyond, only its existence is known."""
EXPRESSION_SHOWN_MAX: Final = 100
NOTHING: Final = "nothing"


class Wish(NamedTuple):
    """The subscriptions of one member. ``digest`` covers all of them, ``topics`` has the first ones as text."""

    digest: bytes
    message_model: str
    topics: tuple[tuple[str, str], ...]


def wish_of(message_model: str, subscriptions: Iterable[SubscriptionData]) -> Wish:
    """Return a member's wish. The order of tags does not matter; retry topics, which clients add, do not count."""
    texts = {each.topic: _text(each) for each in subscriptions if not is_retry_topic(each.topic)}
    topics = sorted(texts.items())
    digest = hashlib.blake2b(repr((message_model, topics)).encode("utf-8", "replace"), digest_size=16).digest()
    shown = tuple((topic, text[:EXPRESSION_SHOWN_MAX]) for topic, text in topics[:TOPICS_SHOWN_MAX])
    return Wish(digest, message_model, shown)


def _text(subscription: SubscriptionData) -> str:
    expression = (subscription.sub_string or "*").strip()
    kind = subscription.expression_type or TAG_TYPE
    if kind != TAG_TYPE:
        return f"{kind} {expression}"
    return " || ".join(sorted(tag.strip() for tag in expression.split("||") if tag.strip()))


Member = tuple[str, Wish]
"""Client id and wish."""


def differing(wishes: Mapping[str, Wish]) -> tuple[Member, Member] | None:
    """Return two members with different subscriptions, None when all agree."""
    if not wishes:
        return None
    one = min(wishes)
    others = (member for member, wish in wishes.items() if wish.digest != wishes[one].digest)
    other = min(others, default=None)
    return None if other is None else ((one, wishes[one]), (other, wishes[other]))


def difference(first: Member, second: Member) -> str:
    """Return one line that names two members and their different subscriptions."""
    (one, left), (other, right) = first, second
    if left.message_model != right.message_model:
        return f"{one} is {left.message_model}, {other} is {right.message_model}"
    wanted, found = dict(left.topics), dict(right.topics)
    for topic in sorted({*wanted, *found}):
        if wanted.get(topic) != found.get(topic):
            ours, theirs = (repr(each[topic]) if topic in each else NOTHING for each in (wanted, found))
            return f"topic {topic}: {one} subscribes to {ours}, {other} to {theirs}"
    return f"{one} and {other} differ in a topic or filter beyond the first {TOPICS_SHOWN_MAX}"
