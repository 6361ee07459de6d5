"""Who has created a topic or a group, and how many a user may create.

The name of the user is kept as an attribute of the topic or group (``CREATOR_ATTRIBUTE``), in the tables that are
persisted and mirrored to slaves. What brokers make by themselves, retry topics for one, has no creator and counts for
nobody; what is deleted no longer counts.

Lives here: ``claim``, ``without_creator``.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pocketmq.auth.session import Session
from pocketmq.common import refusals
from pocketmq.remoting.limits.quota import exceeded

CREATOR_ATTRIBUTE: Final = "pocketmq.creator"
Attributes = Mapping[str, str] | None


def claim(session: Session | None, kind: str, name: str, others: Iterable[Attributes]) -> dict[str, str]:
    """Return the attributes that name the creator of something new; ``kind`` is ``topic`` or ``group``.

    ``others``: the attributes of all that exist. Raise ``QuotaExceeded``. Without a session nobody is known.
    """
    if session is None:
        return {}
    user = session.user.username
    limits = session.limits
    limit = 0 if limits is None else (limits.topics_max if kind == "topic" else limits.groups_max) or 0
    if limit:
        count = sum(attributes is not None and attributes.get(CREATOR_ATTRIBUTE) == user for attributes in others)
        if count >= limit:
            raise exceeded(refusals.QUOTA_CREATED, f"{kind} {name[:255]}", user, count, limit)
    return {CREATOR_ATTRIBUTE: user}


def without_creator(attributes: Attributes) -> dict[str, str]:
    """Return attributes that a client has sent without the one that only the broker may set."""
    return {name: value for name, value in (attributes or {}).items() if name != CREATOR_ATTRIBUTE}
