"""A consumer's filter on a topic: ``*`` or ``A || B``.

Lives here: parsing of tag expressions, the form in which heartbeats and pulls carry them, the client's own second
check; SQL92 expressions in the same form.
"""

from dataclasses import dataclass

from pocketmq.client.errors import SubscriptionIllegal
from pocketmq.common.hashes import java_string_hash
from pocketmq.common.sql_filter import SQL92_TYPE, TAG_TYPE, FilterIllegal, compile_filter
from pocketmq.remoting.protocol.client import SubscriptionData

ALL = "*"
TAGS_MAX = 1_000
EXPRESSION_LENGTH_MAX = 16_384


@dataclass(slots=True, frozen=True)
class Subscription:
    """One topic's filter. ``tags`` empty: everything. ``version`` grows when it changes (ms, RocketMQ's subVersion)."""

    topic: str
    expression: str
    tags: frozenset[str]
    version: int
    expression_type: str = TAG_TYPE

    @property
    def is_all(self) -> bool:
        """Whether it selects every message."""
        return self.expression_type == TAG_TYPE and not self.tags

    def selects_as(self, other: "Subscription") -> bool:
        """Return whether another subscription selects the same messages by the same expression."""
        if self.expression_type != other.expression_type or self.tags != other.tags:
            return False
        return self.expression_type == TAG_TYPE or self.expression == other.expression

    @property
    def codes(self) -> frozenset[int]:
        """The Java hashes of the tags: what the broker compares."""
        return frozenset(map(java_string_hash, self.tags))

    def matches(self, tags: str) -> bool:
        """Return whether a message with these tags matches; by string, since hashes may collide."""
        return not self.tags or tags in self.tags


def parse_subscription(topic: str, expression: str, version: int) -> Subscription:
    """Parse ``*``, an empty string, or tags separated by ``||`` (FilterAPI.java); raise ``SubscriptionIllegal``."""
    if not isinstance(expression, str):
        raise SubscriptionIllegal(
            "tags refused", why=f"{type(expression).__name__} is no str", hint='write "A || B" or "*"'
        )
    if len(expression) > EXPRESSION_LENGTH_MAX:
        raise SubscriptionIllegal("tags refused", why=f"{len(expression)} characters, over {EXPRESSION_LENGTH_MAX}")
    if expression.strip() in ("", ALL):
        return Subscription(topic, ALL, frozenset(), version)
    tags = frozenset(tag.strip() for tag in expression.split("||")) - {""}
    if not tags:
        raise SubscriptionIllegal("tags refused", why=f"{expression!r} names no tag", hint='write "A || B" or "*"')
    if len(tags) > TAGS_MAX:
        raise SubscriptionIllegal("tags refused", why=f"{len(tags)} tags, over {TAGS_MAX}")
    for tag in tags:
        if "|" in tag:
            raise SubscriptionIllegal("tags refused", why=f"{tag!r} holds a single |", hint='separate tags by "||"')
    return Subscription(topic, expression.strip(), tags, version)


def parse_sql(topic: str, expression: str, version: int) -> Subscription:
    """Check a SQL92 filter on properties; raise ``SubscriptionIllegal``, which names the position of the error."""
    try:
        compile_filter(expression)
    except FilterIllegal as error:
        raise SubscriptionIllegal(error.what, why=error.why, hint=error.hint) from error
    return Subscription(topic, expression, frozenset(), version, SQL92_TYPE)


def subscription_data(subscription: Subscription) -> SubscriptionData:
    """Return a subscription as heartbeats carry it."""
    return SubscriptionData(
        topic=subscription.topic,
        sub_string=subscription.expression,
        tags_set=sorted(subscription.tags),
        code_set=sorted(subscription.codes),
        sub_version=subscription.version,
        expression_type=subscription.expression_type,
    )
