"""Tag expressions of a subscription.

Lives here: ``parse_tags``: ``*`` or ``a || b`` to the hash codes that a consume queue is filtered by.
"""

from typing import Final

from pocketmq.common.java_hash import java_string_hash
from pocketmq.common.sql_filter import FilterIllegal

ALL: Final = "*"
TAGS_MAX: Final = 4096


def parse_tags(expression: str | None) -> frozenset[int] | None:
    """Return the codes of the wanted tags, or None for all; raises ``FilterIllegal`` (RocketMQ FilterAPI).

    The code of a tag is its Java hash, sign-extended: what the consume queue holds.
    """
    if not expression or expression == ALL:
        return None
    tags = [tag.strip() for tag in expression.split("||")]
    tags = [tag for tag in tags if tag]
    if not tags:
        raise FilterIllegal("subscription refused", why=f"no tag in {expression[:128]!r}", hint="write a || b, or *")
    if len(tags) > TAGS_MAX:
        raise FilterIllegal("subscription refused", why=f"{len(tags)} tags, limit {TAGS_MAX}")
    return frozenset(java_string_hash(tag) for tag in tags)
