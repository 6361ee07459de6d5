"""Whether a user may do something with the topic of a stored message, which only its processor knows.

Lives here: ``check_stored``.
"""

from typing import Final

from pocketmq.auth.errors import AccessDenied
from pocketmq.auth.needed import resource_of
from pocketmq.auth.session import Session
from pocketmq.common.topics import TOPICS_OF_ALL
from pocketmq.remoting.codec import Request
from pocketmq.remoting.protocol.access import Action, Resource

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
        raise AccessDenied(
            f"User:{session.user.username} has no permission to access {kind.value}:{name[:255]} from"
            f" {session.source}, {OF_ALL_TOPICS if verdict.allowed else verdict.why}"
        )
