"""Errors of the wire: frames, headers, connections.

Lives here: every error that ``pocketmq.remoting`` raises or hands to a callback.
"""

from pocketmq.common.errors import BytesIllegal, Cause, PocketMQError


class BadFrame(PocketMQError):
    """Bytes that are not a RocketMQ frame; the connection cannot be used any further."""

    default_cause = Cause.CODEC


class FrameTooLarge(BadFrame):
    """A peer announced a frame above the limit, or the caller built one."""


class HeaderIllegal(PocketMQError):
    """A header that cannot be read or breaks its own definition.

    ``opaque`` and ``request_code`` are set if they could still be read, so that the peer gets an answer; ``oneway``:
    it does not wait for one. ``field`` is the wire name of the field at fault, if any. ``language`` and ``version``
    are those the client announces, -1 if they could not be read.
    """

    default_cause = Cause.CODEC

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        hint: str = "",
        field: str = "",
        opaque: int | None = None,
        request_code: int | None = None,
        oneway: bool = False,
    ) -> None:
        super().__init__(what, why=why, hint=hint)
        self.field = field
        self.opaque = opaque
        self.request_code = request_code
        self.oneway = oneway
        self.language = self.version = -1


class WrongDirection(HeaderIllegal):
    """A response where a request was expected, or the other way round."""


class BodyIllegal(BytesIllegal):
    """The body of an administrative request or response is not the JSON it should be."""


class BindFailed(PocketMQError):
    """The server cannot listen on the address it was given."""

    default_cause = Cause.CONFIG


class AddressInUse(BindFailed):
    """Another process listens on the port; ``port`` is 0 where it is not said."""

    def __init__(self, what: str, *, why: str = "", hint: str = "", port: int = 0) -> None:
        super().__init__(what, why=why, hint=hint)
        self.port = port


class ConnectFailed(PocketMQError):
    """No connection could be made; nothing was sent. ``reason``: why, in the words of the system, without times."""

    retriable = True
    default_cause = Cause.CONNECTION
    reason = ""


class ConnectionLost(PocketMQError):
    """The connection ended before the answer came; ``stored`` is UNKNOWN when the request may have left."""

    retriable = True
    default_cause = Cause.CONNECTION


class CredentialsIllegal(PocketMQError):
    """Keys that cannot be credentials."""

    default_cause = Cause.CONFIG


class AuthenticationFailed(PocketMQError):
    """A server refused the client's credentials, or could not prove that it knows them; nothing was carried out."""

    code = 16  # NO_PERMISSION
    default_cause = Cause.NO_PERMISSION


class RequestTimeout(PocketMQError):
    """No answer came in time; the request may have been carried out."""

    retriable = True
    default_cause = Cause.TIMEOUT


class RemotingTooMuchRequestError(PocketMQError):
    """The outgoing buffer of a connection or its table of pending requests is full; nothing was sent."""

    retriable = True
    default_cause = Cause.QUEUE_FULL
