"""How a call ended: RocketMQ's response codes and our causes as the codes that gRPC clients know.

Source: RocketMQ 5.3.3 ``ResponseBuilder``: what it does not map is INTERNAL_SERVER_ERROR. Here a request that is wrong
itself (``Cause.BAD_REQUEST``) is BAD_REQUEST, so that a client can tell its own mistake from the server's.

Lives here: ``CallRefused``, ``status_of_answer``, ``status_of_error``, ``OK``.
"""

from typing import Final

from pocketmq.auth.errors import AccessDenied
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.topics import GroupIllegal, TopicIllegal
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.grpc.codes import Code
from pocketmq.remoting.grpc.messages import Status

OK: Final = Status(code=Code.OK, message="OK")
_CODES: Final = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
}
_DENIED: Final = ("User:", "username ")
"""How the guard's refusals begin: they have the code of a forbidden topic."""


class CallRefused(Exception):
    """Ends a call with a status inside its answer."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.status = Status(code=code, message=text)


def status_of_answer(answer: Response) -> Status:
    """Return the status for an answer of the broker."""
    if answer.code == ResponseCode.SUCCESS:
        return OK
    code = _CODES.get(
        ResponseCode(answer.code) if answer.code in ResponseCode._value2member_map_ else ResponseCode.SYSTEM_ERROR
    )
    extra = answer.extra
    cause = extra.get("cause", "")
    if code is None:
        code = Code.BAD_REQUEST if cause == Cause.BAD_REQUEST.value else Code.INTERNAL_SERVER_ERROR
    elif code is Code.FORBIDDEN and answer.remark.startswith(_DENIED):
        code = Code.UNAUTHORIZED
    return Status(
        code=code, message=_text(answer.remark, cause, extra.get("stored", ""), extra.get("retry_after_ms", ""))
    )


def status_of_error(error: PocketMQError) -> Status:
    """Return the status for an error of this process."""
    code = Code.INTERNAL_SERVER_ERROR
    if isinstance(error, AccessDenied):
        code = Code.UNAUTHORIZED
    elif isinstance(error, TopicIllegal):
        code = Code.ILLEGAL_TOPIC
    elif isinstance(error, GroupIllegal):
        code = Code.ILLEGAL_CONSUMER_GROUP
    elif error.code in _CODES:
        code = _CODES[ResponseCode(error.code)]
    elif error.cause is Cause.BAD_REQUEST:
        code = Code.BAD_REQUEST
    return Status(
        code=code, message=_text(str(error), error.cause.value, error.stored.value, str(error.retry_after_ms))
    )


def _text(remark: str, cause: str, stored: str, retry_after_ms: str) -> str:
    """Return a text with what a refusal of ours says beside RocketMQ's words."""
    facts = []
    if cause and cause != Cause.NONE.value:
        facts.append(f"cause {cause}")
    if stored:
        facts.append(f"stored {stored}")
    if retry_after_ms not in ("", "0"):
        facts.append(f"retry after {retry_after_ms} ms")
    return f"{remark} [{', '.join(facts)}]" if facts else remark
