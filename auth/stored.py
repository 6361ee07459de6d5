"""Whether a user may do something with the topic of a stored message, which only its processor knows.

Lives here: ``check_stored``, ``words_of``, ``RECORDS``.
"""

from typing import Final

from pocketmq.auth.errors import AccessDenied
from pocketmq.auth.needed import resource_of
from pocketmq.auth.session import Session
from pocketmq.common.topics import TOPICS_OF_ALL
from pocketmq.remoting.codec import Request
from pocketmq.remoting.protocol.access import Action, Resource
from pocketmq.remoting.protocol.spec import Raw

RECORDS: Final = (Raw.RECORDS, Raw.SIZED_RECORDS)
"""Answers that have stored messages in them."""
OF_ALL_TOPICS: Final = "it holds messages of all topics: only a super user reads them here."


def check_stored(request: Request, topic: str, actions: Action) -> None:
    """Raise ``AccessDenied`` if the sender of ``request`` may do none of ``actions`` on ``topic``. A request without a
    session may do everything: no guard has seen it."""
    session: Session | None = request.session
    if session is None or not session.checks:
        return
    kind, name, wanted = resource_of(Resource.TOPIC, topic, actions)
    verdict = session.verdict(kind, name, wanted)
    if not verdict.allowed or topic in TOPICS_OF_ALL:
        user, host, resource = session.user.username, str(session.source), f"{kind.value}:{name[:255]}"
        why = OF_ALL_TOPICS if verdict.allowed else verdict.why
        if session.denials is not None:
            session.denials.note("policy", user, host, request.code, resource, words_of(wanted), why)
        raise AccessDenied(f"User:{user} has no permission to access {resource} from {host}, {why}")


def words_of(actions: Action) -> str:
    """Return the names of actions of which one is enough.

    >>> words_of(Action.SUB | Action.GET)
    'Sub or Get'
    """
    return " or ".join(each.name.capitalize() for each in Action if each in actions and each.name)
